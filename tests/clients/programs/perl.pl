# The program of Perl's Gearman::Client and Gearman::Worker: see tests/clients/README.md.
use strict;
use warnings;
use Gearman::Client;
use Gearman::Worker;
use JSON::PP;
use Storable;
use Time::HiRes;

$| = 1;
my ($role, $servers, $last) = @ARGV;
my @servers = split /,/, $servers;
my $json = JSON::PP->new->canonical->allow_nonref;

sub tell_event { print $json->encode([@_]), "\n" }

sub note {
    my ($path, $text) = split / /, $_[0]->arg =~ s/\0+$//r, 2;
    open my $file, '>>', $path or die "$path: $!";
    print $file "$text\n";
    close $file;
    return $text;
}

sub work {
    my $worker = Gearman::Worker->new(job_servers => [@servers], client_id => $last);
    my %functions = (
        reverse => sub { scalar reverse $_[0]->arg },
        note    => \&note,
        fail    => sub { undef },
        throw   => sub { die 'thrown:' . $_[0]->arg . "\n" },
        parts   => sub {
            my $job = shift;
            $worker->send_work_data($job, 'first');
            $worker->send_work_warning($job, 'careful');
            $job->set_status(1, 2);
            $worker->send_work_data($job, 'second');
            return 'parts:' . $job->arg;
        },
        wait => sub {
            my $job = shift;
            $job->set_status(1, 4);
            Time::HiRes::sleep(0.01) until -e $job->arg;
            return 'opened';
        },
    );
    $worker->register_function("$last-$_", $functions{$_}) for keys %functions;
    # The shortest time-out that it can ask for (it means seconds and sends milliseconds).
    $worker->register_function("$last-limited", 1, $functions{wait});
    $worker->work while 1;
}

sub ask {
    my $request = $json->decode($last);
    my $client = Gearman::Client->new(job_servers => [@servers], exceptions => 1);
    if ($request->{do} eq 'status') {
        my $status = $client->get_status($request->{handle});
        my @progress = $status->progress ? @{ $status->progress } : (0, 0);
        tell_event('status', map { $_ ? \1 : \0 } $status->known, $status->running);
        tell_event('progress', map { $_ + 0 } @progress);
        return;
    }
    my %options = (priority => $request->{priority}, uniq => $request->{unique});
    if ($request->{do} eq 'counts') {
        my ($functions) = values %{ $client->get_job_server_status };
        tell_event('counts', map { $_ + 0 } @{ $functions->{ $request->{function} } }{qw(queued running capable)});
        return;
    }
    if ($request->{do} eq 'background') {
        my $handle = $client->dispatch_background($request->{function}, $request->{payload},
            {%options});
        tell_event('created', $handle);
        return;
    }
    my $tasks = $client->new_task_set;
    my $handle = $tasks->add_task($request->{function}, $request->{payload}, {
        %options,
        on_data      => sub { tell_event('data', ${ $_[0] }) },
        on_warning   => sub { tell_event('warning', ${ $_[0] }) },
        on_status    => sub { tell_event('progress', map { $_ + 0 } @_) },
        on_complete  => sub { tell_event('complete', ${ $_[0] }) },
        on_fail      => sub { tell_event('failed') },
        # Another Perl worker's exception is frozen; those of other languages are plain.
        on_exception => sub {
            my $thawed = eval { Storable::thaw($_[0]) };
            tell_event('exception', $thawed ? ${$thawed} : $_[0]);
        },
    });
    tell_event('created', $handle);
    $tasks->wait;
}

$role eq 'worker' ? work() : ask();
