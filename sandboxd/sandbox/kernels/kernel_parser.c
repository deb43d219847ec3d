/* kernel_parser.c - a thread and a queue. */
#include "sandboxd/sandbox/kernels/kernel_parser.h"

#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/http/loop.h"

#include <pthread.h>

struct work {
    struct work *next;
    struct loop *loop;
    char *line;
    size_t size;
    bool as_text;
    void (*done)(void *cookie, struct kernel_frame *frame, const struct error *err);
    void *cookie;
    struct kernel_frame frame;
    struct error error;
};

struct kernel_parser {
    pthread_mutex_t mutex; /* guards all but the thread's handle */
    pthread_cond_t changed;
    struct work *first, *last;
    const struct work *current;
    bool has_thread, ends;
    pthread_t thread;
};

struct kernel_parser *kernel_parser_new(void)
{
    struct kernel_parser *parser = memory_new(sizeof *parser);
    pthread_mutex_init(&parser->mutex, NULL);
    pthread_cond_init(&parser->changed, NULL);
    return parser;
}

void kernel_parser_free(struct kernel_parser *parser)
{
    if (!parser)
        return;
    pthread_mutex_lock(&parser->mutex);
    parser->ends = true;
    pthread_cond_broadcast(&parser->changed);
    pthread_mutex_unlock(&parser->mutex);
    if (parser->has_thread)
        pthread_join(parser->thread, NULL);
    pthread_cond_destroy(&parser->changed);
    pthread_mutex_destroy(&parser->mutex);
    free(parser);
}

static void tell(void *cookie)
{
    struct work *work = cookie;
    bool is_read = work->error.kind == ERROR_NONE;
    work->done(work->cookie, is_read ? &work->frame : NULL, is_read ? NULL : &work->error);
    kernel_frame_done(&work->frame);
    free(work);
}

static void parse(struct work *work)
{
    if (kernel_frame_parse(work->line, work->size, &work->frame, &work->error) && work->as_text)
        kernel_frame_make_text(&work->frame);
    free(TAKE(work->line));
}

/* With the mutex; NULL: the end. */
static struct work *wait_for_work(struct kernel_parser *parser)
{
    while (!parser->first && !parser->ends)
        pthread_cond_wait(&parser->changed, &parser->mutex);
    struct work *work = parser->first;
    if (work)
        parser->first = work->next;
    parser->current = work;
    return work;
}

static void *run(void *cookie)
{
    struct kernel_parser *parser = cookie;
    struct work *work;
    pthread_mutex_lock(&parser->mutex);
    while ((work = wait_for_work(parser)) != NULL) {
        pthread_mutex_unlock(&parser->mutex);
        parse(work);
        pthread_mutex_lock(&parser->mutex);
        parser->current = NULL;
        loop_post(work->loop, tell, work);
        pthread_cond_broadcast(&parser->changed);
    }
    pthread_mutex_unlock(&parser->mutex);
    return NULL;
}

void kernel_parser_start(struct kernel_parser *parser, const char *line, size_t size, bool as_text,
                         void (*done)(void *cookie, struct kernel_frame *frame, const struct error *err), void *cookie)
{
    struct work *work = memory_new(sizeof *work);
    *work = (struct work){.loop = loop_current(),
                          .line = memory_copy(line, size),
                          .size = size,
                          .as_text = as_text,
                          .done = done,
                          .cookie = cookie};
    pthread_mutex_lock(&parser->mutex);
    if (!parser->has_thread)
        parser->has_thread = pthread_create(&parser->thread, NULL, run, parser) == 0;
    if (parser->first)
        parser->last->next = work;
    else
        parser->first = work;
    parser->last = work;
    bool has_thread = parser->has_thread;
    pthread_cond_broadcast(&parser->changed);
    if (!has_thread) { /* then it waits after all */
        log_warn("sandbox", "no thread for large frames: they are read on a loop");
        (void)wait_for_work(parser);
        parse(work);
        parser->current = NULL;
        loop_post(work->loop, tell, work);
    }
    pthread_mutex_unlock(&parser->mutex);
}

/* With the mutex. */
static bool has_work_of(const struct kernel_parser *parser, const struct loop *loop)
{
    for (const struct work *work = parser->first; work; work = work->next)
        if (work->loop == loop)
            return true;
    return parser->current && parser->current->loop == loop;
}

void kernel_parser_finish(struct kernel_parser *parser)
{
    pthread_mutex_lock(&parser->mutex);
    while (has_work_of(parser, loop_current()))
        pthread_cond_wait(&parser->changed, &parser->mutex);
    pthread_mutex_unlock(&parser->mutex);
}
