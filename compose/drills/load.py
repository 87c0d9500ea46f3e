"""Write JSON readings to ``lab-readings`` for some seconds, as a user's producer would.

    python load.py SECONDS [READINGS_PER_SECOND]

By default 1,000 readings a second of 50 motes, with the times of this machine's clock.
"""

import json
import os
import sys
import time

from confluent_kafka import Producer

seconds = float(sys.argv[1])
per_s = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
producer = Producer(
    {"bootstrap.servers": os.environ["SLACKWATER_BOOTSTRAP"], "enable.idempotence": True}
)
begun = time.time()
SENT = 0
while (gone := time.time() - begun) < seconds:
    while gone * per_s > SENT:
        at, mote = time.time_ns() // 1000, f"m{SENT % 50}"
        reading = {"mote": mote, "at": at, "temperature": 20 + SENT % 100 / 8}
        producer.produce("lab-readings", json.dumps(reading).encode())
        SENT += 1
    producer.poll(0.01)
left = producer.flush(60)
print(f"load: {SENT - left} readings delivered, {left} not")
sys.exit(left > 0)
