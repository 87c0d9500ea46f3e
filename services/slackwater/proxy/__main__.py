"""Entry point of ``python -m slackwater.proxy STREAM ...``."""

from slackwater.proxy.app import main

main()
