#include "store/permits.h"

#include <sys/wait.h>

#include <chrono>
#include <future>

#include "store/jit_policy.h"
#include "unit_support.h"

namespace lazyck::rt {

using unit::Scratch;

namespace {

// Another process that holds the lock of a file until the object is destroyed, and says `text` in
// it.
class Holder {
 public:
    Holder(const std::string& path, const std::string& text) {
        int ready[2];
        REQUIRE(pipe(ready) == 0);
        m_process = fork();
        if (m_process == 0) {
            FileLock lock(path);
            lock.write(text);
            static_cast<void>(!write(ready[1], "x", 1));
            while (true) pause();
        }
        char byte;
        REQUIRE(read(ready[0], &byte, 1) == 1);
        close(ready[0]);
        close(ready[1]);
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ~Holder() {
        kill(m_process, SIGKILL);
        waitpid(m_process, nullptr, 0);
    }
    pid_t process() const { return m_process; }

 private:
    pid_t m_process;
};

PermitRequest request_in(const Scratch& scratch, unsigned jobs, long needed_kib) {
    PermitRequest request;
    request.directory = scratch.path();
    request.jobs = jobs;
    request.needed_kib = needed_kib;
    request.patience = 60;
    request.subject.words = "unit";
    return request;
}

}  // namespace

TEST_CASE("a figure is read after its name") {
    const Scratch scratch;
    unit::write_file(scratch / "file", "MemTotal:  10 kB\nMemAvailable:   77 kB\nodd: x\n");
    CHECK(figure_in(scratch / "file", "MemAvailable:") == 77);
    CHECK(figure_in(scratch / "file", "odd:") == -1);
    CHECK(figure_in(scratch / "file", "absent:") == -1);
    CHECK(figure_in(scratch / "absent", "") == -1);
    CHECK(free_memory_kib() != 0);
    CHECK(free_memory_kib() <= figure_in("/proc/meminfo", "MemTotal:"));
}

TEST_CASE("what is left in a cgroup and those above it is the least of them") {
    const Scratch scratch;
    const std::string groups = scratch / "groups", root = scratch / "root";
    const auto room = [&] { return cgroup_room_kib(groups, root); };
    const auto write = [&](const std::string& group, const char* most, const char* used, const char* stat) {
        REQUIRE(mkdir((root + group).c_str(), 0700) == 0);
        unit::write_file(root + group + "/memory.max", most);
        unit::write_file(root + group + "/memory.current", used);
        unit::write_file(root + group + "/memory.stat", stat);
    };
    CHECK(room() == -1);
    unit::write_file(groups, "1:memory:/old\n0::/a/b\n");
    CHECK(room() == -1);
    write("", "max\n", "0\n", "");
    CHECK(room() == -1);
    write("/a", "10240\n", "4096\n", "anon 7\ninactive_file 1024\n");
    CHECK(room() == 7);
    write("/a/b", "9216\n", "4096\n", "anon 7\n");
    CHECK(room() == 5);
    unit::write_file(root + "/a/memory.current", "20480\n");
    CHECK(room() == 0);
    unit::write_file(root + "/memory.max", "2048\n");
    unit::write_file(groups, "0::/\n");
    CHECK(room() == 2);
}

TEST_CASE("a slot's file tells the reserved memory and the compiler") {
    const Scratch scratch;
    HostPermit slot(request_in(scratch, 2, 5));
    CHECK(slot.busy() == 0);
    CHECK(read_text(scratch / "slot-0") == "5 0\n");
    slot.started(77);
    CHECK(read_text(scratch / "slot-0") == "5 77\n");
    CHECK(!is_file(scratch / "slot-2"));
}

TEST_CASE("slots that others hold are counted, and the first free one is taken") {
    const Scratch scratch;
    const Holder holder(scratch / "slot-0", "1 0\n");
    const HostPermit slot(request_in(scratch, 3, 1));
    CHECK(slot.busy() == 1);
    CHECK(read_text(scratch / "slot-1") == "1 0\n");
    CHECK(read_text(scratch / "slot-2") == "");
}

TEST_CASE("a compile waits for memory only beside others") {
    const Scratch scratch;
    const long all = figure_in("/proc/meminfo", "MemTotal:");
    {
        const HostPermit alone(request_in(scratch, 2, 2 * all));
    }
    auto holder = std::make_unique<Holder>(scratch / "slot-0", std::to_string(2 * all) + " 0\n");
    {  // 0 is whatever is free
        const HostPermit any(request_in(scratch, 2, 0));
        CHECK(any.busy() == 1);
    }
    auto waiting = std::async(std::launch::async, [&] { return HostPermit(request_in(scratch, 2, 1)).busy(); });
    CHECK(waiting.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
    holder.reset();
    CHECK(waiting.get() == 0);
}

TEST_CASE("memory that a compiler already uses is not promised twice") {
    const Scratch scratch;
    // The holder itself stands for the compiler, and uses more than was reserved for it.
    const long room = free_memory_kib();
    const Holder holder(scratch / "slot-0", "1 " + std::to_string(getpid()) + "\n");
    const HostPermit slot(request_in(scratch, 2, room / 4));
    CHECK(slot.busy() == 1);
}

TEST_CASE("with all slots taken a compile waits for one") {
    const Scratch scratch;
    auto holder = std::make_unique<Holder>(scratch / "slot-0", "1 0\n");
    auto waiting = std::async(std::launch::async, [&] { return HostPermit(request_in(scratch, 1, 1)).busy(); });
    CHECK(waiting.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
    holder.reset();
    CHECK(waiting.get() == 0);
}

TEST_CASE("a holder that has had its slot for longer than the patience is passed over") {
    const Scratch scratch;
    const Holder holder(scratch / "slot-0", "1 0\n");
    PermitRequest request = request_in(scratch, 1, 1);
    request.patience = 0;
    const HostPermit slot(request);
    CHECK(slot.busy() == 0);
    CHECK(read_text(scratch / "slot-1") == "1 0\n");
}

TEST_CASE("a call may compile unless a setting, the program or the end of warm-up forbids it") {
    Config config;
    JitPolicy permitted(config);
    CHECK(!permitted.is_forbidden());
    CHECK(std::string(permitted.forbidden_by()) == "");
    CHECK(!permitted.forbid(true));
    CHECK(std::string(permitted.forbidden_by()) == "the program (lazyck_forbid_jit)");
    CHECK(permitted.is_forbidden());
    CHECK(permitted.forbid(false));
    CHECK(!permitted.is_forbidden());
    config.jit = Jit::off;
    CHECK(std::string(JitPolicy(config).forbidden_by()) == LAZYCK_ENV_JIT "=off");
}

TEST_CASE("after warm-up a compile is watched, or is an error") {
    Config config;
    config.jit = Jit::error;
    const JitPolicy strict(config);
    config.jit = Jit::warn;
    const JitPolicy watching(config);
    const JitPolicy plain{Config()};
    CHECK(!set_ready(false));
    CHECK(!is_ready());
    CHECK(!strict.is_forbidden());
    CHECK(!watching.is_watching());
    CHECK(!set_ready(true));
    CHECK(is_ready());
    CHECK(std::string(strict.forbidden_by()) == LAZYCK_ENV_JIT "=error after warm-up (lazyck_ready)");
    CHECK(!strict.is_watching());
    CHECK(watching.is_watching());
    CHECK(!watching.is_forbidden());
    CHECK(!plain.is_forbidden());
    CHECK(!plain.is_watching());
    CHECK(set_ready(false));
    CHECK(!is_process_ready());
}

}  // namespace lazyck::rt
