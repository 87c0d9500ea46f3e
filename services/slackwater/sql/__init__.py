"""SQL as a second notation of a deployment: text in, statements and findings out. Pure.

``tokens.py`` makes tokens with places, ``parser.py`` and ``create_query.py`` make statements of
them, and ``document.py`` makes the mapping that the deployment file is read into. The checks are
those of the file (``slackwater.deployment``), and expressions remain text. ``declared.py`` returns
the mapping of a deployment, ``printer.py`` and ``yaml_text.py`` write it as SQL and as YAML.
"""
