"""Reads the deployment file and checks it: from YAML to a ``Deployment``, or all its errors.

``parse`` is the entrance. Shapes are Pydantic models; what depends on several fields is checked for
each stream and each query by itself, so that one run finds every error.
"""
