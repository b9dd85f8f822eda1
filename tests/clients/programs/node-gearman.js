// The program of node-gearman: see tests/clients/README.md.
"use strict";
const fs = require("fs");
const Gearman = require("node-gearman");

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
  const server = new Gearman(host, Number(port));
  const functions = {
    reverse: (payload, job) => job.end(text(payload).split("").reverse().join("")),
    note: (payload, job) => job.end(note(text(payload))),
    fail: (payload, job) => job.error(),
    parts: (payload, job) => {
      job.write("first");
      job.write("second");
      job.end("parts:" + text(payload));
    },
    wait: (payload, job) => {
      const look = () => (fs.existsSync(text(payload)) ? job.end("opened") : setTimeout(look, 10));
      look();
    },
  };
  for (const [name, act] of Object.entries(functions)) {
    server.registerWorker(`${last}-${name}`, act);
  }
}

function ask(request) {
  const server = new Gearman(host, Number(port));
  const background = request.do === "background";
  const job = server.submitJob(request.function, request.payload, request.unique, {
    background,
    priority: request.priority,
  });
  if (background) {
    // It tells nothing about a job in background, not even that there is one.
    server.receive_JOB_CREATED = (handle) => {
      tell("created", handle);
      server.close();
    };
    return;
  }
  const received = [];
  job.on("data", (data) => received.push(text(data)));
  job.on("end", () => {
    // It does not tell data from the result.
    tell("complete", received.join(""));
    server.close();
  });
  job.on("error", () => {
    tell("failed");
    server.close();
  });
}

if (role === "worker") {
  work();
} else {
  ask(JSON.parse(last));
}
