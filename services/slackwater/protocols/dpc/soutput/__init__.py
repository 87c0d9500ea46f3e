"""SOutput: answers, UNDO and REC_DONE of a query's part (DPC, section 4.4.2).

``core`` runs a root's two lines over its children, ``decision`` says what a step answers,
``answers`` writes it (UNDO and REC_DONE are here). ``upstream`` watches the replicas of a child
(Table II), ``stable_input`` and ``live_input`` read their logs as one.
"""
