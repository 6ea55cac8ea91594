#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>

#include "base/failure.h"
#include "base/hash.h"
#include "base/text.h"
#include "bundle/arch.h"
#include "bundle/readable.h"
#include "bundle/recipe.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/process.h"
#include "platform/read_rule.h"
#include "platform/staging.h"
#include "store/private_names.h"
#include "store/same_text.h"
#include "store/store.h"

namespace lazyck::rt {

namespace {

using Clock = std::chrono::steady_clock;
constexpr char k_object[] = "blob.o";  // output of a compile step that a link step follows
constexpr char k_product[] = "blob.so";
constexpr std::size_t k_longest_cost = 200;
constexpr std::size_t k_longest_output = 16 << 20;  // a compiler's first error stands before that
constexpr double k_least_worth_a_text = 4;          // seconds of a compile; computing the text takes half a second

// One compile. The permits are held as long as this object exists.
class Compilation {
 public:
    explicit Compilation(const Missing& missing)
        : m_missing(missing),
          m_store(missing.store),
          m_recipe(missing.at.manifest.recipe(missing.blob.recipe)),
          m_source(m_store.sources->find(missing.at, missing.cache)),
          m_text(missing, m_recipe) {
        m_store.sources->check(m_source, missing.at);
        m_values.source = m_source.named;
        m_values.name = hash(missing.key.library + '\n' + missing.blob.name).hex().substr(0, 16);
        m_values.kernel = kernel_of(missing.blob);
        m_values.archs = missing.key.archs;
        m_values.launcher = m_store.config.launcher;
        // The names are relative, so that the command works in any directory in which it is
        // repeated.
        m_values.object = k_object;
        m_values.output = k_product;
        if (!m_source.root.empty()) m_values.root = LAZYCK_BUNDLE_LINK;
        // A launcher finds its cached objects by the command, so the command is not changed for it.
        if (m_store.config.has_preambles && m_values.launcher.empty() && m_values.kernel.empty())
            m_preamble = Preambles::find(missing, m_source);
    }

    // Waits for permits, compiles the entry, and returns it, published.
    Entry run(RemoteEntry* remote) {
        take_permits();
        Event event(LAZYCK_EVENT_COMPILE, m_missing.subject);
        event.expected = m_missing.guess.blob.seconds;
        Span span(m_store.events, event, m_missing.cache.history_path());
        m_start = Clock::now();
        UniqueFd output;
        try {
            prepare();
            output = compile();
        } catch (const std::exception& e) {
            report(e, span.event());
            throw;
        }
        const double seconds = m_text.is_taken_over() ? 0 : seconds_since(m_start);
        if (m_is_preamble_refused) give_up_preamble(m_preamble);
        if (m_text.is_taken_over()) {
            ++m_store.counters.hits;
            span.event().kind = LAZYCK_EVENT_WAIT;
            span.event().what = "its text, which has an entry already";
        } else {
            m_missing.cache.costs(m_missing.key).add({seconds, m_peak_kib});
            m_store.counters.compile_ns += static_cast<std::uint64_t>(seconds * 1e9);
            ++m_store.counters.compiles;
            span.event().peak_kib = m_peak_kib;
        }
        // The entry is read through its descriptor, since another process may have emptied the
        // cache meanwhile.
        EntryLookup found = read_entry(std::move(output), m_missing.cache, m_missing.key, m_missing.symbols);
        if (found.state != EntryState::ready) {
            span.event().what = found.problem;
            fail("lazyck: the cache entry '" + m_missing.path + "' was compiled and is damaged (" + found.problem +
                 "); is the file system broken?");
        }
        span.event().size = found.entry.file->size();
        span.succeed();
        found.entry.origin = m_text.is_taken_over() ? LAZYCK_ORIGIN_TEXT : LAZYCK_ORIGIN_COMPILED;
        found.entry.seconds = seconds;
        found.entry.peak_kib = m_peak_kib;
        if (remote != nullptr) remote->made();
        m_text.give_to_remotes();
        return std::move(found.entry);
    }

 private:
    // Takes one permit of this process and one of the host. If others are left, a HIP blob takes a
    // second of the process, to compile host and device in parallel.
    void take_permits() {
        const double begin = now_seconds();
        const std::string host_unit = host_unit_of(m_missing.blob);
        m_permit.emplace(m_store.permits, host_unit.empty() ? m_missing.blob.name : host_unit);
        m_host_permit.emplace(m_missing.permit_request());
        m_missing.tell_wait("a compile permit", begin);
        const unsigned jobs = m_store.config.jobs;
        if (!m_values.launcher.empty() || m_host_permit->busy() + 2 + m_store.permits.announced() > jobs) return;
        m_beside = words_for_hip(LAZYCK_UNIT_HIP_OBJECT);
        if (!m_beside.empty() && !m_permit->takes_one_more()) m_beside.clear();
    }

    // Returns the words in front of a HIP blob's compile step that make `lazyck-unit` do `what` for
    // it. The result is empty for other blobs.
    Strings words_for_hip(const char* what) const {
        if (!m_missing.blob.has_parts) return {};
        const Strings words = m_missing.at.manifest.recipe(m_missing.blob.host_recipe).compile;
        if (words.size() < 2 || words[1] != LAZYCK_UNIT_HIP_ENTRY) return {};
        RecipeValues values;
        values.root = LAZYCK_BUNDLE_LINK;
        RecipeRow program;
        program.compile = {words[0]};
        return {make_plan(program, values).compile.at(0), what, "-", m_values.source, k_object, "--"};
    }

    void prepare() {
        m_staging.emplace(m_missing.cache.staging_prefix(m_missing.key));
        m_log = open_at(m_staging->fd(), "log", O_RDWR | O_CREAT | O_APPEND);
        if (!m_log) fail_system("cannot write '" + m_staging->path() + "/log'", errno);
        if (!m_source.root.empty() && symlinkat(m_source.root.c_str(), m_staging->fd(), LAZYCK_BUNDLE_LINK) != 0)
            fail_system("cannot make a link in '" + m_staging->path() + "'", errno);
        m_values.toolchain = find_toolchain(m_recipe);
        m_plan = make_plan(m_recipe, m_values);
        Strings own = places_of(m_source, m_missing.blob);
        own.insert(own.end(), {m_store.paths.library, m_preamble});
        m_readable = Readable(m_recipe, m_values.toolchain, own);
        m_read_rule = ReadRule(m_readable.files, m_staging->fd());
    }

    // Compiles, and announces the beginning and the end. Returns the entry, open and published.
    UniqueFd compile() {
        const Subject& subject = m_missing.subject;
        const double expected = m_missing.guess.blob.seconds;
        m_has_begun = true;
        log_message(
            Level::info,
            "compiling " + subject.words + (expected > 0 ? " (about " + seconds_text(expected) + ") ..." : " ..."),
            {"compile_begin", subject});
        if (m_plan.link.empty()) {
            run_step("compile", m_plan.compile, k_product);
        } else {
            if (!is_known_by_text() && !is_compiled_faster()) run_step("compile", m_plan.compile, k_object);
            if (!m_text.is_taken_over()) {
                name_privately();
                run_step("link", m_plan.link, k_product);
            }
        }
        UniqueFd output = open_at(m_staging->fd(), k_product, O_RDWR | O_APPEND);
        if (!output) fail_system("cannot open '" + m_staging->path() + "/blob.so'", errno);
        const std::string fault = find_fault(output.get(), m_missing.key.machine, m_missing.symbols);
        // A compiler whose exit status is unknown may have been killed. One that succeeded would
        // make the same file again.
        if (!fault.empty()) fail_here(fault, "", {m_is_end_known, 0});
        // The key says what the sources were; they were checked before the compile.
        const std::string change = m_store.sources->find_change(m_source, m_missing.at);
        if (!change.empty()) {
            fail_here("the bundle was changed while it was compiled from: " + change,
                      "the result would go into the cache under a key that it does not match", {false, 0});
        }
        seal_entry(output.get(), m_missing.key.id(), m_text.digest());
        keep_log();
        publish(m_staging->fd(), k_product, m_missing.path);
        m_text.keep();
        const double spent = seconds_since(m_start);
        log_message(Level::info,
                    (m_text.is_taken_over() ? "took over " : "compiled ") + subject.words + " in " +
                        seconds_text(spent) +
                        (m_text.is_taken_over() ? ": an existing entry was made from the same text" : ""),
                    {"compile_end", subject, spent, m_text.is_taken_over() ? "reused" : "compiled"});
        return output;
    }

    void report(const std::exception& e, Event& event) const {
        // A part of a blob that fails is no error yet: the whole blob is compiled then.
        const bool has_other_way =
            !m_missing.at.manifest.has_slots() && m_values.kernel == host_unit_of(m_missing.blob);
        if (m_has_begun) {
            const std::string& words = m_missing.subject.words;
            log_message(has_other_way ? Level::info : Level::error,
                        has_other_way ? words + " cannot be compiled alone: the whole blob is compiled instead"
                                      : "could not compile " + words,
                        {"compile_end", m_missing.subject, seconds_since(m_start), "failed"});
        }
        ++m_store.counters.failures;
        event.what = first_line_of(e);
        event.peak_kib = m_peak_kib;
        // The next attempt reserves more memory.
        if (dynamic_cast<const OutOfMemory*>(&e) == nullptr) return;
        const long needed = memory_for(m_store.config, m_missing.guess);
        m_missing.cache.costs(m_missing.key)
            .add({m_missing.guess.blob.seconds, std::max(2 * needed, m_peak_kib)}, true);
    }

    void name_privately() {
        const UniqueFd object = open_at(m_staging->fd(), k_object, O_RDWR);
        if (!object) fail_system("cannot open '" + m_staging->path() + "/" + k_object + "'", errno);
        const ManifestView& manifest = m_missing.at.manifest;
        const std::string fault =
            give_private_names(object.get(), manifest.private_names(), manifest.private_tag(), m_missing.symbols);
        if (!fault.empty()) fail_here(fault, "", {m_is_end_known, 0});
    }

    // Asks only for an entry of the compile's text, if that is likely to pay off.
    bool is_known_by_text() {
        const Guess& guess = m_missing.guess;
        const double expected = guess.blob.seconds > 0 ? guess.blob.seconds : guess.largest.seconds;
        const bool is_long = m_store.config.has_all_text_keys || expected <= 0 || expected >= k_least_worth_a_text;
        Strings words = m_store.config.has_text_keys && is_long ? words_for_hip(LAZYCK_UNIT_HIP_TEXT) : Strings();
        if (words.empty()) return false;
        words.insert(words.end(), m_plan.compile.begin(), m_plan.compile.end());
        run(words);
        return m_text.is_taken_over();
    }

    // Tries host and device in parallel with the preamble, then the preamble alone.
    bool is_compiled_faster() {
        if (m_plan.compile.empty()) return false;
        const Strings faster = m_preamble.empty() ? Strings() : preamble_words(m_preamble, m_source.path);
        const auto is_compiled_by = [&](Strings argv) {
            argv.insert(argv.end(), m_plan.compile.begin(), m_plan.compile.end());
            argv.insert(argv.end(), faster.begin(), faster.end());
            const Outcome outcome = run(argv);
            if (outcome.ending == Ending::succeeded && is_file_in(m_staging->fd(), k_object)) return true;
            write_all(m_log.get(), "[" + outcome.text + "; the plain command:]\n");
            return false;
        };
        if (!m_beside.empty() && is_compiled_by(m_beside)) return true;
        if (faster.empty()) return false;
        if (is_compiled_by({})) return true;
        m_is_preamble_refused = true;
        return false;
    }

    Outcome run(const Strings& argv) {
        const std::string line = shell_join(argv);
        log_message(Level::debug, line, {"command", m_missing.subject});
        write_all(m_log.get(), "$ " + line + "\n");
        struct stat log_before = {};
        fstat(m_log.get(), &log_before);
        m_output_at = static_cast<std::size_t>(log_before.st_size);
        Command command;
        command.argv = argv;
        // A launcher has files and settings that are its own.
        const bool is_launched = !m_values.launcher.empty() && argv[0] == m_values.launcher[0];
        command.environment =
            is_launched ? launcher_environment(m_plan, m_values.launcher) : plan_environment(m_plan, m_readable.path);
        command.read_rule = is_launched ? -1 : m_read_rule.fd();
        command.directory = m_staging->fd();
        command.output = m_log.get();
        command.timeout_seconds = m_store.config.compile_timeout;
        command.started = [&](pid_t compiler) { m_host_permit->started(compiler); };
        command.beat = [&](double) {
            const double expected = m_missing.guess.blob.seconds, spent = seconds_since(m_start);
            log_message(Level::info,
                        "still compiling " + m_missing.subject.words + " (" + seconds_text(spent) +
                            (expected > 0 ? " of about " + seconds_text(expected) : "") + ")",
                        {"compile_progress", m_missing.subject, spent});
        };
        UniqueFd ours, theirs;
        int ends[2];
        if (m_text.is_asked_by(argv) && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
            ours = UniqueFd(ends[0]);
            theirs = UniqueFd(ends[1]);
            command.environment.emplace_back(LAZYCK_UNIT_ASKS "=1");
            command.input = theirs.get();
            command.question = ours.get();
            command.asked = [&] { return m_text.answer(ours.get(), *m_staging, k_product); };
        }
        const Outcome outcome = run_command(command);
        m_peak_kib = std::max(m_peak_kib, outcome.peak_rss_kib);
        return outcome;
    }

    void run_step(const char* name, const Strings& argv, const char* product) {
        if (argv.empty()) fail_here(std::string("its recipe has no ") + name + " step", "");
        const Outcome outcome = run(argv);
        const bool has_product = m_text.is_taken_over() || is_file_in(m_staging->fd(), product);
        // An unknown ending is judged by the files that the command left; the checks before
        // publishing look into them.
        if (outcome.ending == Ending::succeeded && has_product) {
            keep_cost(product);
            return;
        }
        if (outcome.ending == Ending::unknown) m_is_end_known = false;
        if (outcome.ending == Ending::unknown && has_product) return;
        std::string reason = outcome.ending == Ending::succeeded ? std::string("it made no ") + product : outcome.text;
        if (outcome.has_timed_out) {
            reason = "it took longer than " + seconds_text(m_store.config.compile_timeout) +
                     " (" LAZYCK_ENV_COMPILE_TIMEOUT ") and was killed";
        }
        const std::string output = read_text(m_log.get(), m_output_at, k_longest_output);
        const bool can_log = write_all(m_log.get(), "[" + std::string(name) + " step: " + reason + "]\n");
        const int log_error = can_log ? 0 : errno;  // the compiler's own error message is lost then, too
        if (!outcome.has_started) {
            const bool is_launcher = !m_values.launcher.empty() && argv[0] == m_values.launcher[0];
            const char* const advice = is_launcher ? "; it is the launcher that " LAZYCK_ENV_LAUNCHER
                                                     " or --launcher names: install it, or do without"
                                                   : k_install_advice;
            fail_here(reason + (outcome.is_missing ? advice : ""), "");
        }
        const Verdict verdict = judge(outcome, output, log_error, m_staging->path());
        // The output of a killed compiler does not say why it was killed.
        if (outcome.has_timed_out || outcome.signal != 0) fail_here(reason, "", verdict);
        const std::string first = with_own_path(first_error(output));
        std::string advice = advice_on_arch(first, m_values.archs);
        if (advice.empty() && m_read_rule.fd() >= 0) advice = m_readable.advice_on(output);
        fail_here(first, advice.empty() ? reason : advice, verdict);
    }

    // Records the cost that `lazyck-unit` reports.
    void keep_cost(const std::string& product) const {
        const UniqueFd cost = open_at(m_staging->fd(), product + LAZYCK_SUFFIX_COST, O_RDONLY);
        if (!cost || m_missing.at.manifest.has_slots()) return;
        m_missing.cache.by_kernel(m_missing.key.library, host_unit_of(m_missing.blob))
            .add(read_text(cost.get(), 0, k_longest_cost));
    }

    // Returns a line of the compiler that begins with a file in the bundle, which it sees below a
    // link, with the file's own path.
    std::string with_own_path(const std::string& line) const {
        constexpr std::string_view k_link = LAZYCK_BUNDLE_LINK "/";
        return line.compare(0, k_link.size(), k_link) == 0 ? m_source.root + line.substr(k_link.size() - 1) : line;
    }

    [[noreturn]] void fail_here(const std::string& reason, const std::string& detail, Verdict verdict = {}) {
        const std::string command = reproducer(m_plan, m_source.root);
        write_all(m_log.get(), "[to reproduce: " + command + "]\n");
        keep_log();
        m_missing.fail(reason + (detail.empty() ? "" : "\n  (" + detail + ")"), verdict, command);
    }

    void keep_log() const {
        try {
            publish(m_staging->fd(), "log", m_missing.cache.log_path(m_missing.key));
        } catch (const CompileError&) {
            // A log that cannot be kept is no reason to fail.
        }
    }

    const Missing& m_missing;
    Store& m_store;
    const RecipeRow m_recipe;
    const SourceFile m_source;
    RecipeValues m_values;
    CompilePlan m_plan;
    Readable m_readable;
    ReadRule m_read_rule;
    std::string m_preamble;  // its directory; empty: none
    bool m_is_preamble_refused = false;
    Strings m_beside;  // put before the compile step; it compiles host and device in parallel
    std::optional<HeldPermit> m_permit;
    std::optional<HostPermit> m_host_permit;
    Clock::time_point m_start;
    bool m_has_begun = false;
    std::optional<StagingDirectory> m_staging;
    UniqueFd m_log;
    std::size_t m_output_at = 0;  // where the output of the last command begins in the log
    bool m_is_end_known = true;
    long m_peak_kib = 0;
    SameText m_text;
};

}  // namespace

Entry compile_entry(const Missing& missing, RemoteEntry* remote) { return Compilation(missing).run(remote); }

}  // namespace lazyck::rt
