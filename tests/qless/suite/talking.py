"""Run the life of a job by redis-py alone: `talking.py URL LISTENING_URL PROTOCOL SCRIPT`.

It prints one JSON object: the replies, and the messages that another connection received.
"""

import json
import sys
from pathlib import Path
from typing import Any

import redis

HEARD_TIMEOUT_S = 10


def main() -> None:
    """Make the calls and print the replies and messages."""
    url, listening, protocol, path = sys.argv[1:]
    client = redis.Redis.from_url(url, protocol=int(protocol), decode_responses=True)
    other = redis.Redis.from_url(listening, protocol=int(protocol), decode_responses=True)
    heard = other.pubsub()
    heard.psubscribe("ql:*")
    heard.get_message(timeout=HEARD_TIMEOUT_S)
    script = client.register_script(Path(path).read_text())

    def call(*words: Any) -> Any:
        return script(args=words)

    found: dict[str, Any] = {
        "ping": client.ping(),
        "put": call("put", 1, "w", "q", "j", "K", "{}", 0),
    }
    found["track"] = call("track", 1, "track", "j")
    found["popped"] = [job["jid"] for job in json.loads(call("pop", 2, "q", "worker", 1))]
    found["heartbeat"] = call("heartbeat", 3.5, "j", "worker")
    found["complete"] = call("complete", 4, "j", "worker", "q", "{}")
    found["none"] = call("get", 4, "nothing")
    found["run"] = json.loads(call("stats", 5, "q", 5))["run"]["count"]
    call("recur", 5, "q", "r", "K", "{}", "interval", 60, 1)
    found["next"] = client.zscore("ql:q:q-recur", "r")
    try:
        call("heartbeat", 6, "j", "worker")
    except redis.ResponseError as error:
        found["error"] = str(error)
    call("track", 6, "untrack", "j")
    found["heard"] = [(item["channel"], item["data"]) for item in messages(heard)]
    client.flushdb()
    sys.stdout.write(json.dumps(found))


def messages(heard: Any) -> list[Any]:
    """Return all messages up to that of `untrack`."""
    found: list[Any] = []
    while not found or found[-1]["channel"] != "ql:untrack":
        message = heard.get_message(timeout=HEARD_TIMEOUT_S)
        assert message, found
        found.append(message)
    return found


if __name__ == "__main__":
    main()
