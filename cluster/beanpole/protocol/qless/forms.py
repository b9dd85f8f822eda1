"""The forms of answers: how the result of a call is encoded, independently of the call.

Each call of a dialect selects one of these when its arguments are read; `answers` encodes.
"""

from typing import Final

BULK: Final = 1  # bytes, or None
STATE: Final = 2  # the name of a state
INTEGER: Final = 3  # a number, truncated
NOTHING: Final = 4  # null, whatever the result is
JOB: Final = 5  # a job as JSON, or null
JOBS: Final = 6  # a JSON array of jobs
JOB_LIST: Final = 7  # an array of jobs, each as JSON
JIDS: Final = 8  # an array of jids
ASKED: Final = 9  # an array of the jids of the first argument
NAMES: Final = 10  # a JSON array of names
NAMES_TWICE: Final = 11  # a JSON string that contains a JSON array of names
COUNTED: Final = 12  # the total, and a page of jids or jobs
GROUPS: Final = 13  # the number of failed jobs of each group
TRACKED: Final = 14  # the tracked jobs
JSON_INTEGER: Final = 15  # a number as a bulk string
STATS: Final = 16
QUEUE: Final = 17  # the counts of the one queue
QUEUES: Final = 18  # the counts of all queues
WORKER: Final = 19  # the jobs of a worker
WORKERS: Final = 20  # the counts of all workers
OPTION: Final = 21  # one option of the configuration
OPTIONS: Final = 22  # the whole configuration
RECURRING: Final = 23  # a template as JSON, or null
THROTTLE: Final = 24  # a throttle as JSON
THROTTLE_TTL: Final = 25  # the seconds until a throttle expires
IDENTIFIERS: Final = 26  # patterns of queues
PRIORITIES: Final = 27  # patterns of priorities
