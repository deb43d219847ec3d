/** template_list.h - the templates of this node as its launcher told them last. Any thread. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "shared/base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEMPLATE_LIST_MAX 256

struct template_list;

struct template_list *template_list_new(void) MUST_USE;
void template_list_free(struct template_list *list);
DEFINE_AUTO(template_list)

/** One as it is told; the first of a round begins it. More than TEMPLATE_LIST_MAX are left out. */
void template_list_take(struct template_list *list, const struct fl_template *told);
/** Nothing more was told for now: what came is the list from here on. True when it is another one than before. */
bool template_list_settle(struct template_list *list);

/** The caller frees *copy; returns how many. *version (may be NULL) is another one whenever the list has changed,
 * from 1. */
size_t template_list_copy(struct template_list *list, struct fl_template **copy, uint64_t *version);
