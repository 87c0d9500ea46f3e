"""What ``slackwater sql`` does with the statements that ``slackwater.sql`` parses."""
