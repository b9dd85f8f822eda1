-- The calls of this build and their arguments: a server knows it by them.
local QlessAPI = {}
function QlessAPI.get(now, jid) end
function QlessAPI.multiget(now, ...) end
QlessAPI['config.get'] = function(now, key) end
QlessAPI['config.set'] = function(now, key, value) end
QlessAPI['config.unset'] = function(now, key) end
QlessAPI.queues = function(now, queue) end
QlessAPI.complete = function(now, jid, worker, queue, data, ...) end
QlessAPI.failed = function(now, group, start, limit) end
QlessAPI.fail = function(now, jid, worker, group, message, data) end
QlessAPI.jobs = function(now, state, ...) end
QlessAPI.retry = function(now, jid, queue, worker, delay, group, message) end
QlessAPI.depends = function(now, jid, command, ...) end
QlessAPI.heartbeat = function(now, jid, worker, data) end
QlessAPI.workers = function(now, worker) end
QlessAPI.track = function(now, command, jid) end
QlessAPI.tag = function(now, command, ...) end
QlessAPI.stats = function(now, queue, date) end
QlessAPI.priority = function(now, jid, priority) end
QlessAPI.log = function(now, jid, message, data) end
QlessAPI.peek = function(now, queue, count) end
QlessAPI.pop = function(now, queue, worker, count) end
QlessAPI.pause = function(now, ...) end
QlessAPI.unpause = function(now, ...) end
QlessAPI.cancel = function(now, ...) end
QlessAPI.timeout = function(now, ...) end
QlessAPI.put = function(now, queue, jid, klass, data, delay, ...) end
QlessAPI.unfail = function(now, queue, group, count) end
QlessAPI.recur = function(now, queue, jid, klass, data, spec, ...) end
QlessAPI.unrecur = function(now, jid) end
QlessAPI['recur.get'] = function(now, jid) end
QlessAPI['recur.update'] = function(now, jid, ...) end
QlessAPI['recur.tag'] = function(now, jid, ...) end
QlessAPI['recur.untag'] = function(now, jid, ...) end
QlessAPI.length = function(now, queue) end
QlessAPI['worker.deregister'] = function(now, ...) end
QlessAPI['queue.forget'] = function(now, ...) end
