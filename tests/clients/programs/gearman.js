// The program of gearman (npm), which sends and receives single packets: see tests/clients/README.md.
"use strict";
const fs = require("fs");
const gearman = require("gearman");

const [role, servers, last] = process.argv.slice(2);
const [host, port] = servers.split(",")[0].split(":");
const tell = (...event) => process.stdout.write(JSON.stringify(event) + "\n");
const text = (payload) => (payload || "").toString();

function note(payload) {
  const [, path, line] = /^(\S+) ([^\0]*)/.exec(payload);
  fs.appendFileSync(path, line + "\n");
  return line;
}

function work() {
  const server = gearman(host, Number(port));
  const next = () => server.grabJob();
  const simple = (act) => (handle, payload) => {
    server.sendWorkComplete(handle, act(payload));
    next();
  };
  const gate = (handle, payload) => {
    server.sendWorkStatus(handle, "1", "4");
    const look = () => {
      if (!fs.existsSync(payload)) return setTimeout(look, 10);
      server.sendWorkComplete(handle, "opened");
      next();
    };
    look();
  };
  const functions = {
    reverse: simple((payload) => payload.split("").reverse().join("")),
    note: simple(note),
    fail: (handle) => {
      server.sendWorkFail(handle);
      next();
    },
    throw: (handle, payload) => {
      server.sendWorkException(handle, "thrown:" + payload);
      next();
    },
    parts: (handle, payload) => {
      server.sendWorkData(handle, "first");
      server.sendWorkWarning(handle, "careful");
      server.sendWorkStatus(handle, "1", "2");
      server.sendWorkData(handle, "second");
      server.sendWorkComplete(handle, "parts:" + payload);
      next();
    },
    wait: gate,
  };
  server.on("NOOP", next);
  server.on("NO_JOB", () => server.preSleep());
  server.on("JOB_ASSIGN", (job) => {
    functions[job.func_name.slice(last.length + 1)](job.handle, text(job.payload));
  });
  server.connect(() => {
    server.setWorkerId(last);
    for (const name of Object.keys(functions)) server.addFunction(`${last}-${name}`);
    next();
  });
}

function ask(request) {
  const server = gearman(host, Number(port));
  const background = request.do === "background";
  server.on("STATUS_RES", (found) => {
    // One digit of each: more than that this library cannot read.
    const digit = (code) => Number(String.fromCharCode(code));
    tell("status", found.known.toString() === "1", found.running.toString() === "1");
    tell("progress", Number(found.percent_done_num), digit(found.percent_done_den));
    server.close();
  });
  server.on("JOB_CREATED", (handle) => {
    tell("created", handle);
    if (background) server.close();
  });
  server.on("WORK_DATA", (found) => tell("data", text(found.payload)));
  server.on("WORK_WARNING", (found) => tell("warning", found.warning));
  server.on("WORK_STATUS", (found) =>
    tell("progress", Number(found.percent_num), Number(found.percent_den)));
  const end = (...event) => {
    tell(...event);
    server.close();
  };
  server.on("WORK_COMPLETE", (found) => end("complete", text(found.payload)));
  server.on("WORK_EXCEPTION", (found) => end("exception", found.exception));
  server.on("WORK_FAIL", () => end("failed"));
  const submit = () =>
    server.submitJob(request.function, request.payload, {
      background,
      priority: request.priority,
      unique_id: request.unique,
    });
  server.on("OPTION_RES", submit);
  server.connect(() => {
    if (request.do === "status") server.getJobStatus(request.handle);
    else server.setOption("exceptions");
  });
}

function administer(name) {
  const server = gearman(host, Number(port));
  server.adminStatus((found) => {
    const counts = found[name];
    tell("counts", counts.total, counts.running, counts.available_workers);
    const drop = (then) =>
      server.adminDropFunction(name, (error) => {
        tell("dropped", error ? error.message.trim() : "");
        then();
      });
    drop(() => drop(() => {}));
  });
}

const request = role === "worker" ? {} : JSON.parse(last);
if (role === "worker") {
  work();
} else if (request.do === "admin") {
  administer(request.function);
} else {
  ask(request);
}
