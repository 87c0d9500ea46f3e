"""Print the id of the broker that coordinates the root's transactions.

python coordinator.py
"""

import asyncio
import os

from aiokafka.client import AIOKafkaClient, CoordinationType

TRANSACTIONS_OF = "sw.climate.0"  # the id in slackwater.host.committer


async def main() -> None:
    """Look it up with any broker."""
    client = AIOKafkaClient(bootstrap_servers=os.environ["SLACKWATER_BOOTSTRAP"])
    await client.bootstrap()
    print(await client.coordinator_lookup(CoordinationType.TRANSACTION, TRANSACTIONS_OF))
    await client.close()


asyncio.run(main())
