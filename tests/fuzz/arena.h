// The shim frees nothing, since it ends in a millisecond: here each run's memory is freed behind it. Put before
// the shim's sources (-include), whose calls of malloc it takes.
#pragma once

#define _GNU_SOURCE
#include <stdlib.h>

static void* g_blocks[1 << 16];
static size_t g_block_count;

static void* arena_allocate(size_t size) {
    if (g_block_count == sizeof g_blocks / sizeof *g_blocks) abort();  // an allocation without bound
    return g_blocks[g_block_count++] = malloc(size);
}

static void arena_free(void) {
    while (g_block_count) free(g_blocks[--g_block_count]);
}

#define malloc arena_allocate
