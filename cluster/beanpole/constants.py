"""Limits and defaults that several packages share, each with its reason.

A limit that only one package needs lives in that package.
"""

from typing import Final

SECOND_US: Final = 1_000_000

# An event has a byte for a protocol and for a reason.
U8_MAX: Final = 2**8 - 1
# ... and two for a host.
U16_MAX: Final = 2**16 - 1
# The beanstalk protocol's integers for priority, delay and TTR are unsigned 32 bit.
U32_MAX: Final = 2**32 - 1
# A job id shares one integer with the priority in the ready heap (see `core.jobs.job`), and
# JavaScript clients read it as a double, which is exact up to 2**53.
JOB_ID_MAX: Final = 2**53 - 1

# beanstalkd's own default and what its clients assume.
JOB_SIZE_DEFAULT_BYTES: Final = 65_535
# A body must fit into one batch together with what else a client pipelined beside it.
JOB_SIZE_MAX_BYTES: Final = 2 * 1024 * 1024

# A batch is applied in one step of the machine: at 4 MiB that step stays in the milliseconds.
BATCH_MAX_BYTES: Final = 4 * 1024 * 1024
# The leader stops joining batches into one entry here, so that one entry never delays the
# heartbeat behind it; a single larger batch still travels alone.
ENTRY_JOIN_BYTES: Final = 1024 * 1024
# A batch is also bounded in commands: this bounds the time of one apply on every node.
BATCH_COMMANDS_MAX: Final = 4096

# Timers, dead sessions and the like: transitions of one entry beyond its commands. At 2 us each
# this is 2 ms, far below the shortest election timeout.
TRANSITIONS_PER_ENTRY_MAX: Final = 1000
# A kick moves at most this many jobs per command; the origin repeats it up to the client's bound.
KICK_MAX: Final = 1000
# All kicks of one entry: 7 ms. Each takes at most half of what is left of it, so that one alone has
# its KICK_MAX, and a kick behind others is never passed over.
KICKS_PER_ENTRY_MAX: Final = 2 * KICK_MAX
# Watched tubes that the GRANTs of one entry look at: 2 ms, and 64 GRANTs of the longest lists.
LOOKS_PER_ENTRY_MAX: Final = 65_536
# A put into a full queue that drops its oldest jobs drops one in any case, which doubles its cost;
# what it does beyond that is bounded by the entry: 8 ms of looks at ranks and of drops.
DROPS_PER_ENTRY_MAX: Final = 4096
# The leader stops joining batches at this number of commands: 20 ms of apply on every node.
ENTRY_COMMANDS_MAX: Final = 8192
# Watched tubes are looked at one by one at each grant.
WATCHED_TUBES_MAX: Final = 1024
# A tube name's longest length in the beanstalk protocol.
TUBE_NAME_MAX_BYTES: Final = 200
# The longest name of a queue of any protocol: 512 bytes, as libgearman allows, and the prefix of
# its space.
QUEUE_NAME_MAX_BYTES: Final = 513
# What another system calls a job: room for a queue's name and 64 bytes, by which Gearman tells
# jobs apart.
EXTERNAL_ID_MAX_BYTES: Final = 640
# A result beside its body: the two and what stands before them are one chunk of an image.
RESULT_MAX_BYTES: Final = 1024 * 1024
# How far a job is: two numbers as text, and then some.
PROGRESS_MAX_BYTES: Final = 64
# What else a protocol keeps of a job: the name of a Gearman function.
EXTRA_MAX_BYTES: Final = 512
# Clients that are attached to one job: its end tells all of them in one step, 10 ms.
CLIENTS_OF_JOB_MAX: Final = 16_384
# Jobs that one session is attached to: as many as its node listens to for one client.
ATTACHED_MAX: Final = 65_536
# How long a reservation by a client without leases lasts, where the job's own protocol lets the
# lease of a session last for ever: the end of no session would give the job back.
NOBODYS_TTR_US: Final = 60 * SECOND_US
# The longest TTL, as the longest delay and TTR.
TTL_MAX_US: Final = U32_MAX * SECOND_US

# A deduplication key: room for a UUID or a digest in hexadecimal digits.
DEDUP_KEY_MAX_BYTES: Final = 64
# How many are remembered at most, in some 200 MB, and how long by cluster time at least: a job of
# Spark that failed is repeated within a day.
DEDUP_KEYS_MAX: Final = 1_000_000
DEDUP_WINDOW_US: Final = 24 * 3600 * SECOND_US

# What one NOTIFY tells: every listener at every node has it in its output, so no more than a body
# has by default.
NOTIFY_MAX_BYTES: Final = JOB_SIZE_DEFAULT_BYTES
# Since machine version 4 as much as a result, because Gearman's workers send results in parts.
NOTIFY_MAX_BYTES_SINCE_4: Final = RESULT_MAX_BYTES

# A client's host: the longest IPv6 address has 45 characters, and 16 more with its zone.
HOST_NAME_MAX_BYTES: Final = 64
# Hosts that have numbers, in some 12 MB at most; the room that a record of an event has for one.
HOSTS_MAX: Final = U16_MAX

# Priorities below this are "urgent" in beanstalkd's statistics.
URGENT_BELOW: Final = 1024
DEFAULT_TUBE: Final = b"default"

# Cluster-wide defaults of what the machine holds (the leader's configuration sets them; a leader's
# bytes follow its memory).
JOBS_MAX_DEFAULT: Final = 50_000_000
TUBES_MAX_DEFAULT: Final = 100_000
SESSIONS_MAX_DEFAULT: Final = 200_000
QUEUE_BYTES_MAX_DEFAULT: Final = 16 * 1024**3
