"""SOutput: answers, UNDO and REC_DONE of a query's part (DPC, section 4.4.2).

``core`` runs a root's two lines over its children, ``decision`` decides what a step answers,
``answers`` plans the transaction (including UNDO and REC_DONE). ``upstream`` tracks the replicas of
a child (Table II); ``stable_input`` and ``live_input`` merge the replicas' logs to one input.
"""
