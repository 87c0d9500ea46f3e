"""Serves results and status over HTTP: a stream of changes, a JSON API and a page."""
