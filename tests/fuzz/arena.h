// Frees the memory of each run after it, since the shim itself ends in a millisecond and frees
// nothing. `-include` puts this file before all of the shim's sources, whose calls of malloc and
// realpath it takes.
#pragma once

#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>

enum { k_most_blocks = 1 << 16 };

// `weak` makes these one for all sources.
__attribute__((weak)) void* g_blocks[k_most_blocks];
__attribute__((weak)) size_t g_block_count;

__attribute__((unused)) static void* arena_keep(void* block) {
    if (g_block_count == k_most_blocks) abort();  // an allocation without bound
    return g_blocks[g_block_count++] = block;
}

__attribute__((unused)) static void* arena_allocate(size_t size) { return arena_keep(malloc(size)); }

__attribute__((unused)) static char* arena_realpath(const char* path, char* room) {
    char* const found = realpath(path, room);
    return found && !room ? arena_keep(found) : found;
}

__attribute__((unused)) static void arena_free(void) {
    while (g_block_count) free(g_blocks[--g_block_count]);
}

#define malloc arena_allocate
#define realpath arena_realpath
