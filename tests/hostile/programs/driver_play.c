/* driver_play.c - a context's driver that lies: frames that no honest one writes. */
#include "tests/hostile/programs/hostile_init.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static void write_all(int fd, const char *text, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = write(fd, text + done, size - done);
        if (got <= 0)
            _exit(0);
        done += (size_t)got;
    }
}

static void write_many(int fd, const char *text, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        write_all(fd, text, strlen(text));
}

static _Noreturn void speak(int fd, const char *mode)
{
    static char block[65536];
    memset(block, 'a', sizeof block);
    if (strcmp(mode, "endless") == 0) {
        for (;;)
            write_all(fd, block, sizeof block);
    }
    if (strcmp(mode, "deep") == 0)
        write_many(fd, "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 16384);
    if (strcmp(mode, "values") == 0) {
        write_many(fd, "{\"frame\":[", 1);
        write_many(fd, "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,", 65536);
        write_many(fd, "0]}", 1);
    }
    if (strcmp(mode, "nul") == 0)
        write_all(fd, "{\"frame\0\":1}", 12);
    if (strcmp(mode, "utf8") == 0)
        write_many(fd, "{\"frame\":\"\xff\xfe\"}", 1);
    write_many(fd, "\n", 1);
    for (;;)
        pause();
}

void driver_play(struct play *play, const struct fi_start *start)
{
    int fds[FI_FDS], writes[2];
    streams_make(fds, writes);
    started_send(play->connection, start->id, fds, FI_FDS, true, false);
    if (fork() == 0) {
        (void)fcntl(writes[0], F_SETFL, O_WRONLY);
        speak(writes[0], play->modes.driver);
    }
    for (int i = 0; i < FI_FDS; i++)
        close(fds[i]);
    close(writes[0]);
    close(writes[1]);
}
