/* hostile_egress.c - takes parley-egress's place (hostile_preload.c starts it) and says to the launcher what it never
 * would.
 *
 * usage: hostile-egress FOLDER; the socket is the descriptor that PARLEY_EGRESS_FD names. FOLDER/egress.taken names the
 * attacks. In FOLDER/egress.answer stands "ATTACK ok" or "ATTACK no" for what was answered, "ATTACK" where the launcher
 * had enough: then the next one goes on. */
#include "sandboxd/launcher_egress/launcher_egress.h"
#include "shared/base/fd.h"
#include "tests/hostile/programs/hostile_init.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ATTACKS_MAX = 64, NAME_BYTES = 64 };

static int launcher;
static struct eg_sandbox sandbox; /* the first that it is told of */

/* One message within 20 s. */
static bool hear(struct launcher_egress_message *message)
{
    struct error err = {0};
    int fds[EG_FDS];
    size_t count = 0;
    struct pollfd one = {.fd = launcher, .events = POLLIN};
    if (poll(&one, 1, 20000) <= 0 ||
        launcher_egress_receive(launcher, message, EG_FROM_LAUNCHER, fds, &count, &err) <= 0)
        return false;
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    return true;
}

static bool greet(void)
{
    struct launcher_egress_message message = {0}, ready = {.type = EG_READY};
    if (!hear(&message) || !raw_send(launcher, &ready, launcher_egress_size(EG_READY), NULL, 0))
        return false;
    while (message.type != EG_SANDBOX)
        if (!hear(&message))
            return false;
    sandbox = message.as.sandbox;
    return true;
}

static struct launcher_egress_message pin(const char *address)
{
    struct launcher_egress_message message = {.type = EG_PIN, .request = 7};
    message.as.pin =
        (struct eg_pin){.number = sandbox.number, .rules = sandbox.rules, .count = 1, .ttl_s = 60, .ports = {80}};
    message.as.pin.addresses[0] = inet_addr(address);
    return message;
}

/* What is malformed, or a flood: this process is ended for it. */
static void play_breach(const char *name, struct launcher_egress_message *message)
{
    size_t size = launcher_egress_size(EG_PIN), count = 0;
    int fds[16];
    if (strcmp(name, "ready-twice") == 0)
        *message = (struct launcher_egress_message){.type = EG_READY}, size = launcher_egress_size(EG_READY);
    else if (strcmp(name, "other-way") == 0)
        message->type = EG_GONE, size = launcher_egress_size(EG_GONE);
    else if (strcmp(name, "short") == 0)
        size = 1;
    else if (strcmp(name, "long") == 0)
        size++;
    else if (strcmp(name, "no-type") == 0)
        message->type = 4711;
    else if (strcmp(name, "count") == 0)
        message->as.pin.count = UINT32_MAX;
    else if (strcmp(name, "for-ever") == 0)
        message->as.pin.ttl_s = UINT32_MAX;
    else if (strcmp(name, "linger") == 0)
        for (int lingering = descriptor_make("linger", -1); count < 16; count++)
            fds[count] = lingering;
    bool is_flood = strcmp(name, "flood") == 0;
    for (int i = 0; i < (is_flood ? 10000000 : 1); i++)
        if (!raw_send(launcher, message, size, fds, count))
            return;
}

/* Whether the launcher took the pin; -1 when it ended us. */
static int play(const char *name)
{
    struct launcher_egress_message message = pin("1.1.1.1");
    bool is_pin = name[0] >= '0' && name[0] <= '9';
    if (is_pin)
        message = pin(name);
    else if (strcmp(name, "foreign") == 0)
        message.as.pin.number += 1000;
    else if (strcmp(name, "stale") == 0)
        message.as.pin.rules--;
    else if (strcmp(name, "good") != 0)
        play_breach(name, &message);
    if (is_pin || strcmp(name, "foreign") == 0 || strcmp(name, "stale") == 0 || strcmp(name, "good") == 0)
        (void)raw_send(launcher, &message, launcher_egress_size(EG_PIN), NULL, 0);
    do {
        if (!hear(&message))
            return -1;
    } while (message.type != EG_PINNED || strcmp(name, "flood") == 0);
    return (int)message.as.pinned.ok;
}

/* What is left to do should the launcher kill us for this one: the next goes on. */
static void leave(char names[][NAME_BYTES], size_t count)
{
    FILE *rest = fopen("egress.rest", "w");
    for (size_t i = 0; rest && i < count; i++)
        fprintf(rest, "%s\n", names[i]);
    if (!rest || fclose(rest) != 0 || rename("egress.rest", "egress") < 0)
        exit(2);
}

int main(int argc, char *argv[])
{
    static char names[ATTACKS_MAX][NAME_BYTES];
    size_t count = 0;
    const char *fd = getenv(LAUNCHER_EGRESS_ENVIRONMENT);
    if (argc != 2 || fd == NULL || chdir(argv[1]) < 0)
        return 2;
    launcher = atoi(fd);
    FILE *attack = fopen("egress.taken", "r"), *answer = fopen("egress.answer", "a");
    if (attack == NULL || answer == NULL)
        return 2;
    setvbuf(answer, NULL, _IONBF, 0);
    fprintf(answer, "\n");
    while (count < ATTACKS_MAX && fscanf(attack, "%63s", names[count]) == 1)
        count++;
    if (!greet())
        return 2;
    for (size_t i = 0; i < count; i++) {
        leave(names + i + 1, count - i - 1);
        fprintf(answer, "%s", names[i]); /* no more when it is killed for it */
        int is_ok = play(names[i]);
        fprintf(answer, "%s\n", is_ok < 0 ? "" : is_ok ? " ok" : " no");
        if (is_ok < 0)
            return 0;
    }
    (void)unlink("egress");
    fprintf(answer, "over\n");
    return 0;
}
