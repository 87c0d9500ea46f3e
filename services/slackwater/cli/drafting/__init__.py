"""``slackwater init``: drafts a deployment file from the first readings of files and topics."""
