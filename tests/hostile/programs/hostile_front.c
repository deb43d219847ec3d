/* hostile_front.c - takes the front's place (hostile_preload.c starts it) and says to the launcher what no front would.
 *
 * usage: hostile-front FOLDER; the socket is the descriptor that PARLEY_FRONT_FD names. FOLDER/attack names the
 * attacks. In FOLDER/answer stand "== ATTACK" and behind it what the launcher answered, a line a message: "TYPE KIND
 * sentence"; nothing, when it ended this front: then the next one goes on. */
#include "sandboxd/front_launcher/front_launcher.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/hostile/programs/hostile_init.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static int launcher;
static FILE *answer;
static char living[FRONT_LAUNCHER_ID_BYTES]; /* a sandbox of this node */
static const uint64_t MIB = 1 << 20;
static char own[FRONT_LAUNCHER_ID_BYTES]; /* of a sandbox that it asks for: never used again */
static bool is_over;                      /* the launcher has had enough */
static bool has_greeted;

enum { ATTACKS_MAX = 128, NAME_BYTES = 64 };

static void tell(const struct front_launcher_message *message)
{
    if (message->type == FL_REFUSED)
        fprintf(answer, "%u %s %s\n", message->type, error_code(message->as.refused.kind), message->as.refused.message);
    else if (message->type == FL_SANDBOX)
        fprintf(answer, "%u root=%d reused=%u\n", message->type, message->as.sandbox.root_allowed,
                message->as.sandbox.reused);
    else if (message->type == FL_ENDED)
        fprintf(answer, "%u %s\n", message->type, message->as.ended.reason);
    else
        fprintf(answer, "%u\n", message->type);
}

/* One message within 20 s; false at the end of the socket. What nobody asked for is not told. */
static bool hear(bool is_told, uint32_t *type)
{
    struct front_launcher_message message;
    struct error err = {0};
    int fds[FD_MESSAGE_FDS];
    size_t count = 0;
    do {
        struct pollfd one = {.fd = launcher, .events = POLLIN};
        if (poll(&one, 1, 20000) <= 0) {
            fprintf(answer, "silence\n");
            return false;
        }
        if (front_launcher_receive(launcher, &message, FL_FROM_LAUNCHER, fds, &count, &err) <= 0) {
            is_over = true;
            return false;
        }
        for (size_t i = 0; i < count; i++)
            close(fds[i]);
        if (message.type == FL_SANDBOX && message.request == 0)
            memcpy(living, message.as.sandbox.id, sizeof living);
    } while (is_told && message.request == 0);
    if (is_told)
        tell(&message);
    *type = message.type;
    return true;
}

static void greet(void)
{
    struct front_launcher_message message = {.type = FL_READY, .request = 1};
    uint32_t type = 0;
    (void)raw_send(launcher, &message, front_launcher_size(FL_READY), NULL, 0);
    while (type != FL_ADOPTED && hear(false, &type)) {
    }
}

static void say(const struct front_launcher_message *message)
{
    uint32_t type = 0;
    (void)raw_send(launcher, message, front_launcher_size(message->type), NULL, 0);
    (void)hear(true, &type);
}

/* One that would be made: each attack changes one thing of it. */
static struct front_launcher_message *good_prepare(void)
{
    struct front_launcher_message *message = memory_new(sizeof *message);
    struct fl_prepare *prepare = &message->as.prepare;
    message->type = FL_PREPARE;
    message->request = 7;
    memcpy(prepare->id, own, sizeof own);
    strcpy(prepare->hostname, "front");
    strcpy(prepare->template_name, "base");
    strcpy(prepare->isolation, "auto");
    prepare->limits = (struct fl_limits){.cpu_milli = 500, .pids = 64, .memory_bytes = 128 * MIB};
    prepare->deadline_wall_ms = clock_wall_ms() + 3600000;
    prepare->epoch = 1;
    return message;
}

static void volume(struct fl_prepare *prepare, uint8_t kind, const char *source, const char *sub_path, const char *path)
{
    struct fl_volume *to = &prepare->volumes[0];
    prepare->volume_count = 1;
    to->kind = kind;
    if (kind == FL_VOLUME_NAMED)
        strcpy(to->owner, "owner");
    strcpy(to->source, source);
    strcpy(to->sub_path, sub_path);
    strcpy(to->path, path);
}

static void net(struct fl_prepare *prepare, const char *address, uint8_t prefix)
{
    prepare->network.mode = FL_NETWORK_ALLOW;
    prepare->network.net_count = 1;
    prepare->network.nets[0] = (struct fl_net){.address = ntohl(inet_addr(address)), .prefix = prefix};
}

/* False: there is no such attack by prepare. */
static bool spoil_limits(struct fl_prepare *prepare, const char *name)
{
    struct fl_limits *limits = &prepare->limits;
    if (strcmp(name, "memory") == 0)
        limits->memory_bytes = UINT64_MAX;
    else if (strcmp(name, "memory-none") == 0)
        limits->memory_bytes = 0;
    else if (strcmp(name, "cpu") == 0)
        limits->cpu_milli = UINT32_MAX;
    else if (strcmp(name, "pids") == 0)
        limits->pids = UINT32_MAX;
    else if (strcmp(name, "disk") == 0)
        limits->disk_bytes = UINT64_MAX;
    else if (strcmp(name, "open-files") == 0)
        limits->open_files = UINT32_MAX;
    else if (strcmp(name, "commands") == 0)
        limits->commands = 100000;
    else if (strcmp(name, "output") == 0)
        limits->output_bytes = UINT64_MAX;
    else if (strcmp(name, "deadline") == 0)
        prepare->deadline_wall_ms = INT64_MAX;
    else if (strcmp(name, "deadline-past") == 0)
        prepare->deadline_wall_ms = INT64_MIN;
    else
        return false;
    return true;
}

static bool spoil_names(struct fl_prepare *prepare, const char *name)
{
    if (strcmp(name, "template") == 0)
        strcpy(prepare->template_name, "no-such");
    else if (strcmp(name, "template-path") == 0)
        strcpy(prepare->template_name, "../../etc");
    else if (strcmp(name, "isolation") == 0)
        strcpy(prepare->isolation, "none-at-all");
    else if (strcmp(name, "snapshot") == 0)
        strcpy(prepare->snapshot, "snp_nnnnnnnnnnnnnnnnnnnn");
    else if (strcmp(name, "snapshot-path") == 0)
        strcpy(prepare->snapshot, "../../../etc/passwd");
    else if (strcmp(name, "id-path") == 0)
        strcpy(prepare->id, "sbx_../../../../x");
    else if (strcmp(name, "id-endless") == 0)
        memset(prepare->id, 'a', sizeof prepare->id);
    else if (strcmp(name, "hostname") == 0)
        strcpy(prepare->hostname, "a b\n");
    else if (strcmp(name, "env") == 0)
        memset(prepare->env, 'A', sizeof prepare->env);
    else
        return false;
    return true;
}

static bool spoil_ways(struct fl_prepare *prepare, const char *name)
{
    if (strcmp(name, "root") == 0)
        prepare->root_allowed = 1;
    else if (strcmp(name, "volume-host") == 0)
        volume(prepare, FL_VOLUME_HOST, "/etc", "", "/data");
    else if (strcmp(name, "volume-host-up") == 0)
        volume(prepare, FL_VOLUME_HOST, "/srv/../etc", "", "/data");
    else if (strcmp(name, "volume-sub") == 0)
        volume(prepare, FL_VOLUME_NAMED, "mine", "../../..", "/data");
    else if (strcmp(name, "volume-name") == 0)
        volume(prepare, FL_VOLUME_NAMED, "../other", "", "/data");
    else if (strcmp(name, "volume-over-proc") == 0)
        volume(prepare, FL_VOLUME_NAMED, "mine", "", "/proc");
    else if (strcmp(name, "volume-over-root") == 0)
        volume(prepare, FL_VOLUME_NAMED, "mine", "", "/");
    else if (strcmp(name, "volumes") == 0)
        prepare->volume_count = 255;
    else if (strcmp(name, "network") == 0)
        prepare->network.mode = FL_NETWORK_PUBLIC;
    else if (strcmp(name, "network-mode") == 0)
        prepare->network.mode = 77;
    else if (strcmp(name, "network-loopback") == 0)
        net(prepare, "127.0.0.1", 32);
    else if (strcmp(name, "network-metadata") == 0)
        net(prepare, "169.254.169.254", 32);
    else if (strcmp(name, "network-all") == 0)
        net(prepare, "0.0.0.0", 0);
    else
        return false;
    return true;
}

/* Of a sandbox that this node does not have. */
static void play_foreign(uint32_t type)
{
    AUTO_FREE struct front_launcher_message *message = memory_new(sizeof *message);
    message->type = type;
    message->request = 8;
    strcpy(message->as.name.id, "sbx_gggggggggggggggggggg");
    if (type == FL_DEADLINE)
        message->as.deadline.deadline_wall_ms = clock_wall_ms() + 60000;
    if (type == FL_DESTROY)
        strcpy(message->as.destroy.reason, "deleted");
    if (type == FL_SNAPSHOT)
        strcpy(message->as.snapshot.snapshot, "snp_aaaaaaaaaaaaaaaaaaaa");
    say(message);
}

/* Of one that it has, more than it may have. */
static bool play_living(const char *name)
{
    AUTO_FREE struct front_launcher_message *message = memory_new(sizeof *message);
    message->request = 9;
    memcpy(message->as.name.id, living, sizeof living);
    if (strcmp(name, "living-deadline") == 0) {
        message->type = FL_DEADLINE;
        message->as.deadline.deadline_wall_ms = INT64_MAX;
    } else if (strcmp(name, "living-limits") == 0) {
        message->type = FL_LIMITS;
        message->as.limits.limits.memory_bytes = UINT64_MAX;
    } else if (strcmp(name, "living-network") == 0) {
        message->type = FL_NETWORK;
        message->as.network.network.mode = FL_NETWORK_PUBLIC;
    } else if (strcmp(name, "living-snapshot-path") == 0) {
        message->type = FL_SNAPSHOT;
        strcpy(message->as.snapshot.snapshot, "../../../x");
    } else {
        return false;
    }
    say(message);
    return true;
}

static bool play_drops(const char *name)
{
    AUTO_FREE struct front_launcher_message *message = memory_new(sizeof *message);
    message->request = 10;
    message->type = name[0] == 'v' ? FL_VOLUME_DROP : FL_SNAPSHOT_DROP;
    if (strcmp(name, "volume-drop-path") == 0) {
        strcpy(message->as.volume_drop.owner, "owner");
        strcpy(message->as.volume_drop.source, "../../../etc");
    } else if (strcmp(name, "snapshot-drop-path") == 0) {
        strcpy(message->as.snapshot.snapshot, "../../records");
    } else if (strcmp(name, "snapshot-drop") == 0) {
        strcpy(message->as.snapshot.snapshot, "snp_nnnnnnnnnnnnnnnnnnnn");
    } else if (strcmp(name, "rekey") == 0) {
        message->type = FL_REKEY;
        message->as.rekey.epoch = 2;
    } else {
        return false;
    }
    say(message);
    return true;
}

static void send_with(const char *kind, size_t count)
{
    struct front_launcher_message message = {.type = FL_DESTROY, .request = 11};
    int fds[253];
    strcpy(message.as.destroy.id, "sbx_gggggggggggggggggggg");
    strcpy(message.as.destroy.reason, "deleted");
    fds[0] = descriptor_make(kind, -1);
    for (size_t i = 1; i < count; i++)
        fds[i] = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
    (void)raw_send(launcher, &message, front_launcher_size(FL_DESTROY), fds, count);
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

/* Malformed: this front is ended. */
static bool play_bytes(const char *name)
{
    static char large[65536];
    struct front_launcher_message message = {.type = FL_DESTROY, .request = 11};
    uint32_t type = 0;
    size_t size = front_launcher_size(FL_DESTROY);
    if (strcmp(name, "one-byte") == 0)
        (void)raw_send(launcher, "x", 1, NULL, 0);
    else if (strcmp(name, "too-short") == 0)
        (void)raw_send(launcher, &message, size - 1, NULL, 0);
    else if (strcmp(name, "too-long") == 0)
        (void)raw_send(launcher, large, sizeof large, NULL, 0);
    else if (strcmp(name, "ready-twice") == 0)
        (void)raw_send(launcher, &(struct front_launcher_message){.type = FL_READY}, front_launcher_size(FL_READY),
                       NULL, 0);
    else if (strcmp(name, "no-such-type") == 0)
        (void)raw_send(launcher, &(uint64_t[4]){4711}, sizeof(uint64_t[4]), NULL, 0);
    else if (strcmp(name, "other-way") == 0)
        (void)raw_send(launcher, &(struct front_launcher_message){.type = FL_ADOPTED}, front_launcher_size(FL_ADOPTED),
                       NULL, 0);
    else if (strcmp(name, "descriptors") == 0)
        send_with("null", 3);
    else if (strcmp(name, "descriptors-many") == 0)
        send_with("null", 253);
    else if (strcmp(name, "descriptors-linger") == 0)
        send_with("linger", 1);
    else if (strcmp(name, "descriptors-linger-many") == 0)
        send_with("linger", 100);
    else
        return false;
    (void)hear(true, &type);
    return true;
}

/* Asks, and does not listen. */
static void play_flood(void)
{
    struct front_launcher_message message = {.type = FL_DESTROY, .request = 11};
    unsigned long count = 0;
    strcpy(message.as.destroy.id, "sbx_gggggggggggggggggggg");
    strcpy(message.as.destroy.reason, "deleted");
    while (raw_send(launcher, &message, front_launcher_size(FL_DESTROY), NULL, 0) && count < 1000000)
        count++;
    is_over = count < 1000000;
}

static void play_prepare(const char *name)
{
    AUTO_FREE struct front_launcher_message *message = good_prepare();
    struct fl_prepare *prepare = &message->as.prepare;
    if (!spoil_limits(prepare, name) && !spoil_names(prepare, name) && !spoil_ways(prepare, name) &&
        strcmp(name, "good") != 0 && strcmp(name, "replay") != 0)
        fprintf(answer, "no such attack\n");
    say(message);
    if (strcmp(name, "replay") == 0)
        say(message);
    struct front_launcher_message destroy = {.type = FL_DESTROY, .request = 12};
    memcpy(destroy.as.destroy.id, own, sizeof own);
    strcpy(destroy.as.destroy.reason, "deleted");
    say(&destroy);
    if (strcmp(name, "replay") == 0)
        say(message);
}

static void play(const char *name)
{
    static const struct {
        const char *name;
        uint32_t type;
    } FOREIGN[] = {{"foreign-destroy", FL_DESTROY}, {"foreign-deadline", FL_DEADLINE},
                   {"foreign-limits", FL_LIMITS},   {"foreign-network", FL_NETWORK},
                   {"foreign-usage", FL_USAGE},     {"foreign-snapshot", FL_SNAPSHOT}};
    if (!has_greeted && strcmp(name, "nothing-first") != 0)
        greet();
    has_greeted = true;
    for (size_t i = 0; i < sizeof FOREIGN / sizeof *FOREIGN; i++) {
        if (strcmp(name, FOREIGN[i].name) == 0) {
            play_foreign(FOREIGN[i].type);
            return;
        }
    }
    if (strcmp(name, "flood") == 0)
        play_flood();
    else if (strcmp(name, "nothing-first") == 0)
        play_foreign(FL_DESTROY);
    else if (!play_living(name) && !play_drops(name) && !play_bytes(name))
        play_prepare(name);
}

/* What is left to do after this, should the launcher kill us for it: whoever is the next front goes on. */
static void leave(char names[][NAME_BYTES], size_t count)
{
    FILE *rest = fopen("attack.rest", "w");
    for (size_t i = 0; rest && i < count; i++)
        fprintf(rest, "%s\n", names[i]);
    if (!rest || fclose(rest) != 0 || rename("attack.rest", "attack") < 0)
        exit(2);
}

int main(int argc, char *argv[])
{
    static char names[ATTACKS_MAX][NAME_BYTES];
    size_t count = 0;
    const char *fd = getenv("PARLEY_FRONT_FD");
    if (argc != 2 || fd == NULL || chdir(argv[1]) < 0)
        return 2;
    launcher = atoi(fd);
    FILE *attack = fopen("attack.taken", "r");
    answer = fopen("answer.part", "a");
    if (attack == NULL || answer == NULL)
        return 2;
    setvbuf(answer, NULL, _IOLBF, 0);
    while (count < ATTACKS_MAX && fscanf(attack, "%63s", names[count]) == 1)
        count++;
    for (size_t i = 0; i < count; i++) {
        leave(names + i + 1, count - i - 1);
        fprintf(answer, "== %s\n", names[i]);
        (void)snprintf(own, sizeof own, "sbx_f%06d%013zu", (int)getpid() % 1000000, i);
        play(names[i]);
        if (is_over)
            return 0;
    }
    (void)unlink("attack");
    return rename("answer.part", "answer") == 0 ? 0 : 2;
}
