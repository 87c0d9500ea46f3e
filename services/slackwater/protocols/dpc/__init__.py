"""DPC, Delay, Process and Correct (Balazinska et al.): availability first, corrections later.

``source`` writes the persistent log of a data source (section 2.2), ``sunion`` sorts inputs into
buckets (4.2), ``soutput`` answers and corrects (4.4.2), ``reconcile`` staggers the catch-up of
replicas and decides when the lines join (4.4.3). The states of an output (Figure 5) are in
``protocols.common``.
"""
