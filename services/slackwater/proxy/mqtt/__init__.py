"""Input from an MQTT broker."""
