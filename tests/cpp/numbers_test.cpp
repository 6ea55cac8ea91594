#include <limits>

#include "base/text.h"
#include "unit_support.h"

namespace lazyck::rt {

TEST_CASE("decimal rounds, and pads in front") {
    CHECK(decimal(0.049, 1) == "0.0");
    CHECK(decimal(0.05, 1) == "0.1");
    CHECK(decimal(-0.25, 1) == "-0.3");
    CHECK(decimal(-0.04, 1) == "0.0");
    CHECK(decimal(12.345, 0) == "12");
    CHECK(decimal(12.5, 0) == "13");
    CHECK(decimal(1.0625, 3) == "1.063");
    CHECK(decimal(0.001, 3) == "0.001");
    CHECK(decimal(0.5, 1) == "0.5");
    CHECK(decimal(8.9e18, 0) == "8900000000000000000");
    CHECK(decimal(-8.9e18, 0) == "-8900000000000000000");
    CHECK(decimal(9e18, 0) == "0");
    CHECK(decimal(-9e18, 0) == "0");
    CHECK(decimal(std::numeric_limits<double>::quiet_NaN(), 1) == "0");
}

TEST_CASE("number_in takes digits with at most one point, and nothing else") {
    CHECK(number_in("90") == 90);
    CHECK(number_in("0.5") == 0.5);
    CHECK(number_in(".25") == 0.25);
    CHECK(number_in("7.") == 7);
    CHECK(number_in("109.875") == 109.875);
    for (const char* bad : {"", " 1", "\t1", "1 ", "1.2.3", ".", "x", "-1", "1e5", "/", ":", "0,5"}) {
        CAPTURE(bad);
        CHECK(!number_in(bad));
    }
    CHECK(!number_in(std::string(400, '9')));
    CHECK(!number_in("0." + std::string(400, '1')));
}

TEST_CASE("numbers are taken from the front of a text") {
    std::string_view text = " \t1.5 -7 x";
    CHECK(take_number(text) == 1.5);
    CHECK(text == " -7 x");
    CHECK(take_integer(text) == -7);
    CHECK(text == " x");
    CHECK(!take_number(text));
    CHECK(text == "x");
    CHECK(!take_integer(text));
    std::string_view huge = "99999999999999999999";
    CHECK(!take_integer(huge));
    std::string_view tight = "12x";
    CHECK(take_integer(tight) == 12);
    CHECK(tight == "x");
}

TEST_CASE("size_in knows units of powers of 1024") {
    CHECK(size_in("0") == 0);
    CHECK(size_in("7B") == 7);
    CHECK(size_in("1K") == 1024);
    CHECK(size_in("1kib") == 1024);
    CHECK(size_in("1.5 MB") == 1.5 * 1024 * 1024);
    CHECK(size_in("20G") == 20.0 * 1024 * 1024 * 1024);
    CHECK(size_in("2t") == 2.0 * 1024 * 1024 * 1024 * 1024);
    CHECK(size_in("1Z") == std::nullopt);
    for (const char* bad :
         {"", " 1K", "\t1K", "20", "1 ", "1  K", "K", "1KX", "1KiBs", "1KBB", "1BB", "1024T", "-1K"}) {
        CAPTURE(bad);
        CHECK(!size_in(bad));
    }
    CHECK(size_in("900T"));
    CHECK(!size_in("932T"));
    CHECK(size_in("1023999999999999B"));
    CHECK(!size_in("1024000000000000B"));
}

TEST_CASE("size_text has one digit behind the point below a hundred") {
    CHECK(size_text(0) == "0 B");
    CHECK(size_text(999) == "999 B");
    CHECK(size_text(999.5) == "1.0 KB");
    CHECK(size_text(1024) == "1.0 KB");
    CHECK(size_text(99.9 * 1024) == "99.9 KB");
    CHECK(size_text(99.95 * 1024) == "100 KB");
    CHECK(size_text(1.5 * 1024 * 1024 * 1024) == "1.5 GB");
    CHECK(size_text(2048.0 * 1024 * 1024 * 1024 * 1024) == "2048 TB");
}

}  // namespace lazyck::rt
