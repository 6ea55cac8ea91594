// The shim takes the place of a build's compiler. It is written in C because it starts once per
// compiled file.
//
//   conf.c      what set-up left beside the shim: real compiler, option table, globs, places
//   words.c     response files
//   classify.c  command line → action and reason; touches no file but the source
//   inputs.c    recognizes deferred objects and archives with such objects
//   record.c    the record of a call, the deferred object, the list of compiles, the log
//   depfile.c   the rule that names what a blob reads, written or asked of the compiler; headers.c
//               finds the headers, includes.c reads `#include` lines
//   launch.c    a compiler that is named by its path, behind `lazyck-launch`
//   run.c       exec of the real compiler or of the post-build, in a clean environment
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lazyck_abi.h"

typedef struct {
    char** v;  // always ends with NULL
    size_t n, cap;
} List;

typedef struct {
    char* data;
    size_t n, cap;
} Buffer;

// Says what a word is by the option table. A word without a rule is unknown.
typedef struct {
    char mode, role;                    // LAZYCK_MODE_..., LAZYCK_ROLE_...
    const char *text, *reason, *value;  // `value` is what follows the text in the word
} Rule;

// Holds what set-up left beside the shim. shims.py says what the texts and lists are.
typedef struct {
    bool is_launched, sees_links;  // behind `lazyck-launch`; with --links, links come by it too
#define LAZYCK_TEXT(name) const char* name;
#define LAZYCK_LIST(name) List name;
    LAZYCK_SHIM_TEXTS(LAZYCK_TEXT)
    LAZYCK_SHIM_LISTS(LAZYCK_LIST)
} Conf;

enum Action { k_pass, k_defer, k_link };

// Holds a command line with its response files expanded.
typedef struct {
    List args;
    List inputs;        // positional words
    List linker_words;  // words handed through to the linker
    List library_dirs, libraries;
    List targets;   // of the depfile, quoted for make
    List includes;  // directories and forced headers, each after the letter of its role
    List sources;   // sources that it compiles, absolute
    const char *output, *language, *depfile, *host_compiler, *target;
    const char* other_output;               // the output if the words name none; empty or NULL if unknown
    const char *refusal, *compile_refusal;  // reason codes, or NULL
    bool compiles, depends, links_statically, has_odd_response, has_phony_targets, omits_system_headers;
    bool names_source;        // the rule of a depfile is for the source's name with `.o`
    Rule waiting;             // an option among words for another program, whose value is the next such word
    bool has_other_includes;  // options may lead to headers in a way that the shim does not follow
} Command;

// A row of `machines.py`.
typedef struct {
    uint16_t number;       // in ELF
    const char* names[2];  // the first words of target triples
    uint32_t elf_flags, distance;
} Machine;

typedef struct {
    enum Action action;
    const char* reason;
    const char* toolchain;
    const char *source, *output;  // absolute; NULL if there is none
    size_t blobs;                 // number of compiled sources that match the globs
    const Machine* machine;       // of a deferred object
} Verdict;

typedef struct {
    const char *at, *end;
    size_t open_literals;
    bool no_more_comments;
} Scanner;

typedef struct {
    const char* name;   // NULL: a macro, or #embed
    bool quoted, next;  // "name" rather than <name>; #include_next
} Include;

// conf.c
_Noreturn void out_of_memory(void);
void* allocate(size_t size);
char* copy_text(const char* text, size_t size);
char* join_text(const char* a, const char* b, const char* c);
char* directory_of(const char* path);  // without the slash at its end; empty if there is none
const char* name_of(const char* path);
char* conf_of(const char* program);                      // where its configuration is if it is a shim
char** split(const char* text, const char* separators);  // the parts, then NULL; an empty text has none
void push(List* list, const char* word);
bool holds(const List* list, const char* text);
void append(Buffer* b, const void* data, size_t size);
void append_text(Buffer* b, const char* text);
char* text_of(const Buffer* b);
bool read_file(const char* path, char** data, size_t* size);
bool load_conf(Conf* conf, const char* path);

// words.c
Rule find_rule(const Conf* conf, const char* word);
bool expand_words(const Conf* conf, char* const* argv, List* out);

// classify.c
Verdict classify(const Conf* conf, Command* cmd, const char* cwd);
bool is_blob(const Conf* conf, const char* source, const char* given);
// Returns whether a blob is compiled by kernel.
bool is_unit(const Conf* conf, const char* source);
char* absolute_path(const char* cwd, const char* path);

// inputs.c
bool has_deferred_input(Command* cmd);
size_t count_passed_inputs(const Conf* conf, const Command* cmd, const char* cwd);

// record.c
Buffer make_record(const Conf* conf, const Command* cmd, const Verdict* verdict, const char* cwd);
void list_compiles(const Conf* conf, const Command* cmd, const Verdict* verdict, const char* cwd);
void write_log(const Conf* conf, const char* action, const Verdict* verdict, long microseconds);
char* map_text(const List* pairs, const char* text);
const Machine* machine_of(const char* triple);
bool write_object(const char* path, const Buffer* record, const Machine* machine);
bool write_whole(const char* path, const Buffer* content);

// depfile.c
bool write_depfile(const Command* cmd, const char* source, const List* headers);
char* depfile_path(const Command* cmd);
char* quote_for_make(const char* text);
List header_question(const Conf* conf, const Command* cmd);
bool ask_headers(const Conf* conf, const Command* cmd, const char* source, List* headers);

// headers.c
List find_headers(const Conf* conf, const Command* cmd, const char* source, const char* cwd);

// includes.c
void scan_text(Scanner* s, const char* data, size_t size);
bool next_include(Scanner* s, Include* out);

// launch.c
bool become_compiler(Conf* conf, char*** args, bool must_exist);
char* launcher_conf(const char* self, const char** compiler);
const char* shim_by_path(const Conf* conf, const char* program);
void make_parents(const char* path);

// run.c
// Returns PATH without directories of shims.
char* clean_path(const Conf* conf);
void clean_environment(const Conf* conf);
const char* own_path(void);
bool read_output(char** argv, int stream, const Conf* asking, Buffer* out, int* status);
_Noreturn void start(char** argv);
_Noreturn void run_real(const Conf* conf, char* const* args);
_Noreturn void run_postbuild(const Conf* conf, const char* record);
