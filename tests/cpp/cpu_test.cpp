#include "platform/cpu.h"

#include "unit_support.h"

namespace lazyck::rt {

namespace {

unsigned bits(char digit) { return static_cast<unsigned>(std::string("0123456789abcdef").find(digit)); }

}  // namespace

TEST_CASE("a CPU has its own features, and none that it does not know") {
    const std::string own = cpu_features();
    CHECK(cpu_has(own));
    CHECK(cpu_has(""));
    CHECK(cpu_has(std::string(own.size(), '0')));
    CHECK_FALSE(cpu_has(std::string(own.size(), 'f')));
    CHECK_FALSE(cpu_has(own + "0"));
    CHECK_FALSE(cpu_has(own.substr(1)));
    CHECK_FALSE(cpu_has(std::string(own.size(), 'x')));
}

TEST_CASE("a level of CPU has all that lower ones have, and less than all") {
    std::string before(cpu_features().size(), 'f');
    for (const auto& level : cpu_levels()) {
        CAPTURE(level.first);
        const std::string& features = level.second;
        REQUIRE(features.size() == before.size());
        CHECK(features != before);
        for (std::size_t i = 0; i < features.size(); ++i) CHECK((bits(features[i]) & ~bits(before[i])) == 0);
        before = features;
    }
}

}  // namespace lazyck::rt
