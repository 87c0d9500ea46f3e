"""IADS, an intermittently atomic data service (Khazan, Lynch), over a group communication core.

``detector`` suspects silent members, ``topology`` chooses a set of members that all reach each
other, ``group`` agrees on views and delivers messages in them, ``endpoint`` is the automaton of the
paper's Figure 4, and ``member`` joins group and endpoint into what a shell runs.
"""
