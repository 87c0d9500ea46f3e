"""A controller: a member of the group that keeps the record of queries, nodes and placement.

``wire`` encodes values, ``store`` keeps them on disk, ``links`` are authenticated TCP connections,
``server`` runs the protocol's core over both, ``client`` requests operations. ``slackwater.node``
carries out what is recorded; ``nodes`` places fragments on the machines that are connected.
"""
