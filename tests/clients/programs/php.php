<?php
// The program of PHP's binding to libgearman: see tests/clients/README.md.
[, $role, $servers, $last] = $argv;

function tell(...$event): void {
    echo json_encode($event), "\n";
}

// The binding throws where one of the servers is away. A worker knows it all the same.
function connect_worker(string $servers): GearmanWorker {
    $worker = new GearmanWorker();
    foreach (explode(',', $servers) as $server) {
        [$host, $port] = explode(':', $server);
        try {
            $worker->addServer($host, (int)$port);
        } catch (GearmanException $error) {
            fwrite(STDERR, $error->getMessage() . "\n");
        }
    }
    return $worker;
}

// A client with such a server would throw again at each step: it gets the first that is there.
function connect_client(string $servers): GearmanClient {
    foreach (explode(',', $servers) as $server) {
        [$host, $port] = explode(':', $server);
        $client = new GearmanClient();
        try {
            $client->addServer($host, (int)$port);
            return $client;
        } catch (GearmanException $error) {
            fwrite(STDERR, $error->getMessage() . "\n");
        }
    }
    throw $error;
}

function note(string $payload): string {
    [$path, $text] = explode(' ', rtrim($payload, "\0"), 2);
    file_put_contents($path, "$text\n", FILE_APPEND);
    return $text;
}

function gate(GearmanJob $job): string {
    $job->sendStatus(1, 4);
    while (!file_exists($job->workload())) {
        usleep(10000);
        clearstatcache();
    }
    return 'opened';
}

function work(string $servers, string $name): void {
    $worker = connect_worker($servers);
    $worker->setId($name);
    $functions = [
        'reverse' => fn($job) => strrev($job->workload()),
        'note' => fn($job) => note($job->workload()),
        'fail' => fn($job) => $job->sendFail(),
        'throw' => fn($job) => $job->sendException('thrown:' . $job->workload()),
        'parts' => function ($job) {
            $job->sendData('first');
            $job->sendWarning('careful');
            $job->sendStatus(1, 2);
            $job->sendData('second');
            return 'parts:' . $job->workload();
        },
        'wait' => 'gate',
    ];
    foreach ($functions as $function => $act) {
        $worker->addFunction("$name-$function", $act);
    }
    $context = null;
    $worker->addFunction("$name-limited", 'gate', $context, 1);
    while ($worker->work() || $worker->returnCode() == GEARMAN_WORK_FAIL) {
    }
    fwrite(STDERR, 'worker ends: ' . $worker->error() . "\n");
}

function ask(string $servers, array $request): void {
    $client = connect_client($servers);
    if ($request['do'] === 'status') {
        [$known, $running, $numerator, $denominator] = $client->jobStatus($request['handle']);
        tell('status', $known, $running);
        tell('progress', $numerator, $denominator);
        return;
    }
    $suffix = ['low' => 'Low', 'normal' => '', 'high' => 'High'][$request['priority']];
    [$function, $payload] = [$request['function'], $request['payload']];
    if ($request['do'] === 'background') {
        $submit = "do{$suffix}Background";
        tell('created', $client->$submit($function, $payload, $request['unique'] ?: null));
        return;
    }
    $client->enableExceptionHandler();
    $client->setCreatedCallback(fn($task) => tell('created', $task->jobHandle()));
    $client->setDataCallback(fn($task) => tell('data', $task->data()));
    $client->setWarningCallback(fn($task) => tell('warning', $task->data()));
    $client->setStatusCallback(
        fn($task) => tell('progress', $task->taskNumerator(), $task->taskDenominator()));
    $client->setCompleteCallback(fn($task) => tell('complete', $task->data()));
    $client->setExceptionCallback(fn($task) => tell('exception', $task->data()));
    $client->setFailCallback(fn($task) => tell('failed'));
    $add = "addTask$suffix";
    $client->$add($function, $payload, null, $request['unique'] ?: null);
    $client->runTasks();
}

if ($role === 'worker') {
    work($servers, $last);
} else {
    ask($servers, json_decode($last, true));
}
