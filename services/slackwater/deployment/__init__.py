"""Reads and checks the deployment file.

``parse`` is the entry point. It returns a ``Deployment``, or raises one error that lists everything
that is wrong with the file. Pydantic models (``shapes``) check the fields and their types. Each
stream and each query is checked by itself, so that one run reports all errors.
"""
