"""A producer: `producing.py QUEUE COUNT URL...` puts jobs and prints the jids of accepted ones.

After an error it goes to the next address with a new jid, because the fate of the failed put is
unknown.
"""

import sys

import redis
import reqless


def main() -> None:
    """Put COUNT jobs."""
    queue, count, urls = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    taken = tried = at = 0
    client = reqless.Client(urls[at])
    while taken < count:
        tried += 1
        try:
            jid = client.queues[queue].put("noting.Noting", "{}", jid=f"job-{tried}")
        except (redis.RedisError, OSError) as error:
            sys.stderr.write(f"job-{tried}: {error!r}\n")
            at = (at + 1) % len(urls)
            client = reqless.Client(urls[at])
            continue
        taken += 1
        sys.stdout.write(f"{jid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
