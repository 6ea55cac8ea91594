#include "base/text.h"

#include <cerrno>
#include <csignal>

#include "unit_support.h"

namespace lazyck::rt {

TEST_CASE("blanks around a text are taken away") {
    CHECK(without_blanks("") == "");
    CHECK(without_blanks(" \t\r") == "");
    CHECK(without_blanks("x") == "x");
    CHECK(without_blanks(" \tx y\r ") == "x y");
}

TEST_CASE("safe_name keeps what file systems can hold, and tells changed names apart by a hash") {
    CHECK(safe_name("azAZ09._+-") == "azAZ09._+-");
    CHECK(safe_name("") == "_");
    CHECK(safe_name("a/b") == "a_b~" + hash("a/b").hex().substr(0, 8));
    CHECK(safe_name("a/b") != safe_name("a_b"));
    CHECK(safe_name(".hidden").substr(0, 8) == "_hidden~");
    CHECK(safe_name("-option").substr(0, 8) == "_option~");
    CHECK(safe_name("`{@[:/").substr(0, 7) == "______~");
    const std::string longest(160, 'a');
    CHECK(safe_name(longest) == longest);
    CHECK(safe_name(longest + "a") == longest + "~" + hash(longest + "a").hex().substr(0, 8));
}

TEST_CASE("visible shows what is hidden, and leaves out the middle of a long text") {
    CHECK(visible("plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80") == "plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    CHECK(visible("a\nb\tc\x1f \x7f~") == "a\\x0ab\\x09c\\x1f \\x7f~");
    CHECK(visible("\xc2\x80\xc2\x9f\xc2\xa0") == "\\xc2\\x80\\xc2\\x9f\xc2\xa0");
    CHECK(visible("\xc3\x9f") == "\xc3\x9f");
    CHECK(visible("\xe2\x80\xa7") == "\xe2\x80\xa7");
    CHECK(visible("\xe2\x80\xa8") == "\\xe2\\x80\\xa8");
    CHECK(visible("\xe2\x80\xae") == "\\xe2\\x80\\xae");
    CHECK(visible("\xe2\x80\xaf") == "\xe2\x80\xaf");
    CHECK(visible("\xe2\x81\xa5") == "\xe2\x81\xa5");
    CHECK(visible("\xe2\x81\xa6") == "\\xe2\\x81\\xa6");
    CHECK(visible("\xe2\x81\xa9") == "\\xe2\\x81\\xa9");
    CHECK(visible("\xe2\x81\xaa") == "\xe2\x81\xaa");
    CHECK(visible("\xe2\x82\xa8") == "\xe2\x82\xa8");
    CHECK(visible("\xe3\x80\xa8") == "\xe3\x80\xa8");
    const std::string whole(16 * 1024, 'a');
    CHECK(visible(whole) == whole);
    CHECK(visible(whole + "b") == std::string(8 * 1024, 'a') + " [...] " + std::string(8 * 1024 - 1, 'a') + "b");
    CHECK(visible_lines("a\nb\t\x1b") == "a\nb\t\\x1b");
}

TEST_CASE("bytes that are not UTF-8 are shown by their numbers") {
    // These are a lone and a cut sequence, overlong ones, a surrogate, and one beyond Unicode.
    for (const std::string bad :
         {"\x80", "\xc2", "\xc1\xbf", "\xc3(", "\xe0\x9f\xbf", "\xe2\x82", "\xe2(\xa1", "\xed\xa0\x80",
          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x9f\x98", "\xff"}) {
        CAPTURE(bad);
        CHECK(visible(bad).substr(0, 2) == "\\x");
    }
    for (const std::string good :
         {"\xc2\xa1", "\xdf\xbf", "\xe0\xa0\x80", "\xec\xbf\xbf", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbd",
          "\xf0\x90\x80\x80", "\xf1\x80\x80\x80", "\xf3\xa0\x80\x80", "\xf4\x8f\xbf\xbf"}) {
        CAPTURE(good);
        CHECK(visible(good) == good);
    }
}

TEST_CASE("shell_quote makes one word of any text") {
    CHECK(shell_quote("azAZ09_@%+=:,./-") == "azAZ09_@%+=:,./-");
    CHECK(shell_quote("") == "''");
    CHECK(shell_quote("a b") == "'a b'");
    CHECK(shell_quote("$x") == "'$x'");
    CHECK(shell_quote("it's") == "'it'\"'\"'s'");
    CHECK(shell_quote("a\nb'\\") == "$'a\\x0ab\\'\\\\'");
    CHECK(shell_join({"c++", "-o", "a b"}) == "c++ -o 'a b'");
    CHECK(shell_join({}) == "");
}

TEST_CASE("split drops empty parts, and join puts parts together") {
    CHECK(split(";a;,b,", ";,") == Strings{"a", "b"});
    CHECK(split("ab", ";") == Strings{"ab"});
    CHECK(split("", ";").empty());
    CHECK(split(";;", ";").empty());
    CHECK(join({"a", "b", "c"}, ", ") == "a, b, c");
    CHECK(join({"a"}, ", ") == "a");
    CHECK(join({}, ", ") == "");
}

TEST_CASE("a UTF-8 sequence that is cut short is none, whatever follows it in memory") {
    CHECK(utf8_length("\xe2\x82\xac") == 3);
    CHECK(utf8_length(std::string_view("\xe2\x82\xac", 2)) == 0);
    CHECK(utf8_length(std::string_view("\xf0\x9f\x98\x80", 3)) == 0);
}

TEST_CASE("json_string escapes what JSON forbids") {
    CHECK(json_string("a\"b\\c") == "\"a\\\"b\\\\c\"");
    CHECK(json_string("\x1f\n ") == "\"\\u001f\\u000a \"");
    CHECK(json_string("\xe2\x82\xac\xff!") == "\"\xe2\x82\xac\\udcff!\"");
}

TEST_CASE("errors, signals and times are in English") {
    CHECK(system_text(ENOENT) == "No such file or directory");
    CHECK(system_text(EREMOTEIO) == "Remote I/O error");
    CHECK(system_text(9999) == "error 9999");
    CHECK(signal_text(SIGKILL) == "signal 9 (Killed)");
    CHECK(signal_text(60) == "signal 60");
    CHECK(seconds_text(23.14) == "23.1 s");
    CHECK(utc_text(0) == "1970-01-01 00:00:00 UTC");
    CHECK(utc_text(-1) == "1969-12-31 23:59:59 UTC");
    CHECK(utc_text(951782399) == "2000-02-28 23:59:59 UTC");
    CHECK(utc_text(951782400) == "2000-02-29 00:00:00 UTC");
    CHECK(utc_text(951868800) == "2000-03-01 00:00:00 UTC");
    CHECK(utc_text(1795414938) == "2026-11-23 06:22:18 UTC");
    CHECK(utc_text(4107542399) == "2100-02-28 23:59:59 UTC");
    CHECK(utc_text(4107542400) == "2100-03-01 00:00:00 UTC");
    CHECK(utc_text(13574563199) == "2400-02-28 23:59:59 UTC");
    CHECK(utc_text(13574563200) == "2400-02-29 00:00:00 UTC");
    CHECK(utc_text(-62162035200) == "0-03-01 00:00:00 UTC");
    CHECK(utc_text(-62162035201) == "0-02-29 23:59:59 UTC");
    CHECK(utc_text(36610) == "1970-01-01 10:10:10 UTC");
    CHECK(utc_text(1791590400) == "2026-10-10 00:00:00 UTC");
}

}  // namespace lazyck::rt
