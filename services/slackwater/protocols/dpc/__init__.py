"""DPC, Delay, Process and Correct (Balazinska et al.): availability first, corrections later.

``source`` writes the persistent log of a data source (section 2.2), ``sunion`` sorts inputs into
buckets (4.2), ``soutput`` answers and corrects (4.4.2), ``reconcile`` has replicas catch up in
turns and decides when the lines join (4.4.3). An output's states (Figure 5) are in
``protocols.common``.
"""
