"""The replicated record of a deployment and what it means: queries, nodes, placement. Pure.

``control_object`` is the object that controllers replicate, ``control_state`` its state.
``placing``, ``node_watch`` and ``placement`` decide which node runs a fragment, ``recorded`` what a
node is to run, ``admission`` and ``generations`` whether a query may be applied or changed.
"""
