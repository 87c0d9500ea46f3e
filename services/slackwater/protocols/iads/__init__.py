"""IADS, an intermittently atomic data service (Khazan, Lynch), over a group communication core.

``detector`` suspects members whose heartbeats stop, ``topology`` chooses a set of members that all
reach each other, ``group`` agrees on views and delivers messages in them, and ``endpoint`` is the
automaton of the paper's Figure 4. ``member`` combines group and endpoint to one core for the shell.
The replicated object is a parameter; ours is ``slackwater.control.control_object``.
"""
