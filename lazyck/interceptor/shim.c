// Stands in for a compiler: records blobs, hands links of blobs to the post-build, and runs the
// real compiler for all else.
#include "shim.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct timespec m_begun;

static long microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - m_begun.tv_sec) * 1000000 + (now.tv_nsec - m_begun.tv_nsec) / 1000;
}

// Returns `<dir>/.lazyck/<name>.conf`, by the shim's real path, since a build may call it by any
// link or name. If the shim is the launcher for one compiler, `*compiler` is set to this compiler.
static char* conf_path(const char** compiler) {
    const char* self = own_path();
    if (!self) return NULL;
    char* of_launcher = launcher_conf(self, compiler);
    return of_launcher ? of_launcher : conf_of(self);
}

static int fail_to_write(const Conf* conf, Verdict* verdict, const char* path) {
    int why = errno;
    verdict->reason = LAZYCK_WHY_CANNOT_WRITE;
    write_log(conf, LAZYCK_DID_FAIL, verdict, microseconds());
    fprintf(stderr, "%s: error: unable to open output file '%s': '%s'\n", conf->tool, path, strerror(why));
    return 1;
}

static int defer(const Conf* conf, const Command* cmd, Verdict* verdict, const char* cwd) {
    const char* source = cmd->inputs.v[0];
    Buffer record = make_record(conf, cmd, verdict, cwd);
    if (cmd->depends) {
        List headers = find_headers(conf, cmd, source, cwd);
        if (!write_depfile(cmd, source, &headers)) return fail_to_write(conf, verdict, depfile_path(cmd));
    }
    if (!write_object(verdict->output, &record, verdict->machine)) return fail_to_write(conf, verdict, cmd->output);
    list_compiles(conf, cmd, verdict, cwd);
    write_log(conf, LAZYCK_DID_DEFER, verdict, microseconds());
    return 0;
}

// Writes the record of a call for the post-build, and sets `*path`. Returns false if it cannot.
static bool write_record(const Conf* conf, const Command* cmd, Verdict* verdict, const char* cwd, char** path) {
    struct timespec now;
    char name[80];
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof name, "/%ld-%ld%09ld.rec", (long)getpid(), (long)now.tv_sec, now.tv_nsec);
    *path = join_text(conf->links, name, "");
    Buffer record = make_record(conf, cmd, verdict, cwd);
    mkdir(conf->links, 0777);
    return write_whole(*path, &record);
}

// Has the host code of a source compiled, which the link takes later. So an error stops the build
// here, as it does ahead of time. Returns false, and sets the reason, if the real compiler is to
// compile the source, or to report what is wrong with it.
static bool make_unit(const Conf* conf, const Command* cmd, Verdict* verdict, const char* cwd) {
    char *path, *why = NULL;
    size_t size = 0;
    int status = -1;
    if (write_record(conf, cmd, verdict, cwd, &path)) {
        void (*before)(int) = signal(SIGCHLD, SIG_DFL);  // else the system would forget the status
        pid_t child = fork();
        if (!child) run_postbuild(conf, path);
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        signal(SIGCHLD, before);
        unlink(path);
        clock_gettime(CLOCK_MONOTONIC, &m_begun);  // the log's time is for lazyck's own work
    }
    if (!status) return true;
    char* said = join_text(path, LAZYCK_SUFFIX_REFUSED, "");
    bool is_said = read_file(said, &why, &size);
    unlink(said);
    verdict->action = k_pass;
    verdict->reason = join_text(LAZYCK_WHY_NOT_BY_KERNEL ":", is_said ? copy_text(why, size) : "", "");
    return false;
}

static int link_lazily(const Conf* conf, const Command* cmd, Verdict* verdict, const char* cwd) {
    char* path;
    if (!write_record(conf, cmd, verdict, cwd, &path)) return fail_to_write(conf, verdict, path);
    write_log(conf, LAZYCK_DID_LINK, verdict, microseconds());
    run_postbuild(conf, path);
}

// Handles `lazyck-launch --defer <output> <compiler> <words>`: defers, or prints why not, and never
// runs the compiler.
static int defer_only(const Conf* conf, const Command* cmd, Verdict* verdict, const char* cwd) {
    if (verdict->action != k_defer) {
        // counts as a blob: the real compiler would report the missing source
        bool is_gone = !strcmp(verdict->reason, LAZYCK_WHY_SOURCE_UNREADABLE);
        printf("%s %zu\n", verdict->reason, verdict->blobs + is_gone);
        return 0;
    }
    make_parents(verdict->output);
    if (cmd->depends) make_parents(depfile_path(cmd));
    int status = defer(conf, cmd, verdict, cwd);
    if (!status) puts(LAZYCK_WHY_BLOB " 1");
    return status;
}

// Returns what is known about a call if its compiler is unknown.
static Verdict unknown_compiler(const Conf* conf, char* const* args) {
    char cwd[PATH_MAX];
    Verdict verdict = {.reason = LAZYCK_WHY_UNKNOWN_COMPILER};
    for (; getcwd(cwd, sizeof cwd) && *args; args++)
        if (is_blob(conf, absolute_path(cwd, *args), *args) && !verdict.blobs++) verdict.source = *args;
    return verdict;
}

// Warns about a blob that is compiled now. If blobs are named one by one, no summary at the end
// lists them.
static void log_passed(const Conf* conf, const Verdict* verdict) {
    if (!*conf->listed || !verdict->blobs) return;
    fprintf(stderr, "lazyck: warning: %s is compiled now instead of at its first call: %s\n", verdict->source,
            verdict->reason);
}

static int usage(void) {
    fputs("usage: lazyck-launch COMPILER [WORD...]\n  what a build writes before a compiler; see `lazyck build`\n",
          stderr);
    return 2;
}

int main(int argc, char** argv) {
    static Conf conf;
    static Command cmd;
    char cwd[PATH_MAX];
    clock_gettime(CLOCK_MONOTONIC, &m_begun);
    const char* compiler = NULL;
    char* path = conf_path(&compiler);
    if (!path || !load_conf(&conf, path)) {
        fprintf(stderr, "lazyck: %s is a compiler's shim without its configuration (%s)\n  hint: %s\n",
                argc ? argv[0] : "this", path ? path : "/proc is not mounted",
                "take its directory out of PATH, or run `lazyck build full` again");
        return 1;
    }
    char** args = argc ? argv + 1 : argv;
    if (compiler && argc) *--args = (char*)compiler;  // replaces the program's own name
    bool runs_nothing = false;
    if (conf.launch.n) {
        bool sees_links = runs_nothing = *args && !strcmp(*args, LAZYCK_OPTION_DEFER);
        if (!sees_links) sees_links = *args && !strcmp(*args, LAZYCK_OPTION_LINKS);
        if (sees_links) args++;
        if (runs_nothing && *args) cmd.other_output = *args++;
        if (!*args) return usage();
        if (!become_compiler(&conf, &args, runs_nothing)) {
            Verdict unknown = unknown_compiler(&conf, args);
            if (runs_nothing) {
                printf("%s %zu\n", unknown.reason, unknown.blobs);
                return 0;
            }
            write_log(&conf, LAZYCK_DID_PASS, &(Verdict){.reason = unknown.reason}, microseconds());
            log_passed(&conf, &unknown);
            run_real(&conf, args);
        }
        conf.sees_links = sees_links;
    }
    cmd.has_odd_response = !expand_words(&conf, args, &cmd.args);
    if (!getcwd(cwd, sizeof cwd)) {
        write_log(&conf, LAZYCK_DID_PASS, &(Verdict){.reason = LAZYCK_WHY_NO_CWD}, microseconds());
        run_real(&conf, args);
    }
    Verdict verdict = classify(&conf, &cmd, cwd);
    if (runs_nothing) return defer_only(&conf, &cmd, &verdict, cwd);
    bool is_whole = verdict.action == k_defer && !is_unit(&conf, verdict.source);
    if (is_whole || (verdict.action == k_defer && make_unit(&conf, &cmd, &verdict, cwd)))
        return defer(&conf, &cmd, &verdict, cwd);
    if (verdict.action == k_link) return link_lazily(&conf, &cmd, &verdict, cwd);
    list_compiles(&conf, &cmd, &verdict, cwd);
    write_log(&conf, LAZYCK_DID_PASS, &verdict, microseconds());
    log_passed(&conf, &verdict);
    run_real(&conf, args);
}
