/* Compiles or links as the compiler does, but each text only once:
 *     remember MEMORY COMPILER WORD...
 * The results lie in the directory MEMORY, named by a digest of what was read: a source and the
 * demo.h beside it, or blob.o. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char* slurp(const char* path, size_t* size) {
    FILE* file = fopen(path, "rb");
    struct stat found;
    if (file == NULL || fstat(fileno(file), &found) != 0) exit(9);
    char* data = malloc((size_t)found.st_size + 1);
    *size = fread(data, 1, (size_t)found.st_size, file);
    fclose(file);
    return data;
}

static uint64_t add(uint64_t digest, const char* path) { /* FNV-1a */
    size_t size;
    char* data = slurp(path, &size);
    for (size_t i = 0; i < size; ++i) digest = (digest ^ (unsigned char)data[i]) * 0x100000001b3;
    free(data);
    return digest;
}

static void copy(const char* from, const char* to) {
    size_t size;
    char* data = slurp(from, &size);
    FILE* file = fopen(to, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) exit(9);
    free(data);
}

int main(int argc, char** argv) {
    const char *out = "", *source = NULL;
    for (int i = 3; i + 1 < argc; ++i) {
        if (strcmp(argv[i], "-o") == 0) out = argv[i + 1];
        if (strcmp(argv[i], "-c") == 0) source = argv[i + 1];
    }
    uint64_t digest = add(0xcbf29ce484222325, source != NULL ? source : "blob.o");
    if (source != NULL) {
        char header[4096];
        const char* slash = strrchr(source, '/');
        snprintf(header, sizeof header, "%.*sdemo.h", slash == NULL ? 0 : (int)(slash + 1 - source), source);
        digest = add(digest, header);
    }
    char known[4096], part[4200];
    snprintf(known, sizeof known, "%s/%016llx.%s", argv[1], (unsigned long long)digest, source != NULL ? "o" : "so");
    if (access(known, F_OK) == 0) {
        copy(known, out);
        return 0;
    }
    const pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        _exit(9);
    }
    int status = 9;
    if (waitpid(child, &status, 0) != child || status != 0) return WIFEXITED(status) ? WEXITSTATUS(status) : 9;
    snprintf(part, sizeof part, "%s.%d", known, (int)getpid());
    copy(out, part);
    return rename(part, known) == 0 ? 0 : 9;
}
