"""Fargo (Sharma): intermediate nodes, which merge the states of a child and replicate each other.

``merger`` has the intermediate node (sections 3.4.6 and 3.4.8), ``parent`` what reads it.
"""
