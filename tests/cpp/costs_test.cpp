#include "cache/costs.h"

#include "unit_support.h"

namespace lazyck::rt {

using unit::Scratch;

namespace {

Guess guess_from(const std::string& lines) {
    const Scratch scratch;
    unit::write_file(scratch / "lib", lines);
    return Costs(scratch / "lib", "blob", "90").guess();
}

bool is_cheaper_by(const std::string& lines) {
    const Scratch scratch;
    unit::write_file(scratch / "lib", lines);
    return ByKernel(scratch / "lib", "blob").is_cheaper();
}

}  // namespace

TEST_CASE("without records nothing is known of a compile") {
    const Guess guess = Costs("/no/such", "blob", "90").guess();
    CHECK(guess.blob.seconds == 0);
    CHECK(guess.blob.peak_kib == 0);
    CHECK(guess.largest.seconds == 0);
    CHECK(guess.largest.peak_kib == 0);
}

TEST_CASE("the newest line of a blob for its archs counts, else the newest for others") {
    CHECK(guess_from("1.5 100 blob 90\n2.5 200 blob 90\n").blob.seconds == 2.5);
    CHECK(guess_from("1.5 100 blob 90\n2.5 200 blob 90\n").blob.peak_kib == 200);
    CHECK(guess_from("1.5 100 blob 90\n2.5 200 blob 80\n").blob.seconds == 1.5);
    CHECK(guess_from("2.5 200 blob 80\n1.5 100 blob 90\n").blob.seconds == 1.5);
    CHECK(guess_from("2.5 200 blob 80\n1.5 100 blob 75\n").blob.seconds == 1.5);
    CHECK(guess_from("2.5 200 other 90\n").blob.seconds == 0);
    CHECK(guess_from("2.5 200 blo 90\n").blob.seconds == 0);
}

TEST_CASE("the largest figures are those of any blob that was not killed") {
    const Guess guess = guess_from("9 1 other 90\n1 900 other 80\n50 5000 !blob 90\n");
    CHECK(guess.largest.seconds == 9);
    CHECK(guess.largest.peak_kib == 900);
    CHECK(guess.blob.seconds == 50);
    CHECK(guess.blob.peak_kib == 5000);
    CHECK(guess_from("1 1 a 90\n1 0 b 90\n").largest.peak_kib == 1);
}

TEST_CASE("lines that do not parse are left out") {
    for (const char* bad :
         {"x 1 blob 90\n", "1 x blob 90\n", "1 -5 blob 90\n", "1 1\n", "1 1 \n", "1 1 blob\n", "1 1 !\n"}) {
        CAPTURE(bad);
        CHECK(guess_from(bad).blob.seconds == 0);
        CHECK(guess_from(bad).largest.seconds == 0);
    }
    CHECK(guess_from("1 0 blob 90\n").blob.seconds == 1);
    CHECK(guess_from("1 0 blob 90\n").largest.seconds == 1);
}

TEST_CASE("what is added is read again") {
    const Scratch scratch;
    const Costs costs(scratch / "lib", "blob", "90");
    costs.add({1.25, 300});
    costs.add({2, 600}, true);
    CHECK(unit::read_file_of(scratch / "lib") == "1.250 300 blob 90\n2.000 600 !blob 90\n");
    CHECK(costs.guess().blob.peak_kib == 600);
    CHECK(costs.guess().largest.peak_kib == 300);
}

TEST_CASE("figures that came with a bundle stand where this cache has none") {
    const Scratch scratch;
    unit::write_file(scratch / "shipped", "5 500 blob 90\n7 700 other 90\n");
    const Costs costs(scratch / "lib", "blob", "90");
    CHECK(costs.guess(scratch / "shipped").blob.seconds == 5);
    CHECK(costs.guess(scratch / "shipped").blob.peak_kib == 500);
    CHECK(costs.guess(scratch / "shipped").largest.seconds == 7);
    unit::write_file(scratch / "lib", "3 0 blob 90\n");
    CHECK(costs.guess(scratch / "shipped").blob.seconds == 3);
    CHECK(costs.guess(scratch / "shipped").blob.peak_kib == 500);
    CHECK(costs.guess(scratch / "shipped").largest.seconds == 3);
    unit::write_file(scratch / "lib", "0 200 blob 90\n");
    CHECK(costs.guess(scratch / "shipped").blob.seconds == 5);
    CHECK(costs.guess(scratch / "shipped").blob.peak_kib == 200);
    unit::write_file(scratch / "lib", "0.5 0 blob 90\n");
    CHECK(costs.guess(scratch / "shipped").blob.seconds == 0.5);
    CHECK(costs.guess(scratch / "shipped").largest.seconds == 0.5);
    unit::write_file(scratch / "lib", "0.5 1 blob 90\n");
    CHECK(costs.guess(scratch / "shipped").blob.seconds == 0.5);
    CHECK(costs.guess(scratch / "shipped").blob.peak_kib == 1);
    unit::write_file(scratch / "lib", "3 200 blob 90\n");
    CHECK(costs.guess(scratch / "shipped").blob.seconds == 3);
    CHECK(costs.guess(scratch / "shipped").blob.peak_kib == 200);
}

TEST_CASE("only the end of a file of ours is read") {
    const Scratch scratch;
    CHECK(tail_of(scratch / "absent") == "");
    unit::write_file(scratch / "file", "0123456789");
    CHECK(tail_of(scratch / "file") == "0123456789");
    CHECK(tail_of(scratch / "file", 3) == "789");
    CHECK(tail_of(scratch / "file", 10) == "0123456789");
    CHECK(tail_of(scratch / "file", 11) == "0123456789");
    unit::write_file(scratch / "large", std::string(64 * 1024, 'x') + "y");
    CHECK(tail_of(scratch / "large").size() == 64 * 1024);
    CHECK(tail_of(scratch / "large").back() == 'y');
    REQUIRE(chmod((scratch / "file").c_str(), 0666) == 0);
    CHECK(tail_of(scratch / "file") == "");
    // Figures that came with a bundle may be many more.
    std::string many = "5 500 blob 90\n";
    while (many.size() < (4 << 20)) many += "1 1 other 90\n";
    many.resize(4 << 20);
    unit::write_file(scratch / "shipped", many);
    CHECK(Costs(scratch / "lib", "blob", "90").guess(scratch / "shipped").blob.seconds == 5);
    unit::write_file(scratch / "shipped", many + "xxxxxxxxxxxxxxxxxxxxx");
    CHECK(Costs(scratch / "lib", "blob", "90").guess(scratch / "shipped").blob.seconds == 0);
}

TEST_CASE("a first call goes by kernel while nothing is known") {
    CHECK(!is_file("/no/such"));
    CHECK(ByKernel("/no/such", "blob").is_cheaper());
    CHECK(is_cheaper_by("host 5 2 9 8 blob\n"));  // no kernel was compiled yet
}

TEST_CASE("a first call goes by kernel if host unit and kernel cost less than the whole") {
    // The whole costs 3 + 9 for host and text, and own code of eight kernels that share templates.
    CHECK(is_cheaper_by("host 5 2 9 8 blob\nkernel 4 blob\n"));
    CHECK(!is_cheaper_by("host 5 2 2 2 blob\nkernel 9 blob\n"));
    CHECK(!is_cheaper_by("host 5 2 9 1 blob\nkernel 4 blob\n"));
    CHECK(!is_cheaper_by("host 5 2 9 0 blob\n"));
    CHECK(!is_cheaper_by("refused 0 blob\nhost 5 2 9 8 blob\nkernel 4 blob\n"));
    CHECK(!is_cheaper_by("host 5 2 9 8 blob\nkernel 4 blob\nrefused 0 blob\n"));
}

TEST_CASE("the whole's own record counts more than an estimate") {
    CHECK(is_cheaper_by("whole 6 blob\nhost 5 2 9 8 blob\nkernel 4 blob\n"));     // 9 of 9
    CHECK(!is_cheaper_by("whole 5.9 blob\nhost 5 2 9 8 blob\nkernel 4 blob\n"));  // 9 of 8.9
    CHECK(is_cheaper_by("host 5 2 9 8 blob\nkernel 4 blob\nwhole 6 blob\n"));
    CHECK(!is_cheaper_by("host 5 2 9 8 blob\nkernel 4 blob\nwhole 0 blob\n"));
}

TEST_CASE("estimates have a margin, and each further kernel costs a quarter of its own code") {
    // host 4, read 1: host alone 3. Kernels cost 3 each, 2 of it their own. The whole is estimated
    // as (3 + all_text + 2 * (1 + (5 - 1) / 4)) * 0.85, and a call by kernel costs 7.
    CHECK(is_cheaper_by("host 4 1 1.24 5 blob\nkernel 3 blob\n"));
    CHECK(!is_cheaper_by("host 4 1 1.23 5 blob\nkernel 3 blob\n"));
    // Kernels count on average: 2 and 4.
    CHECK(is_cheaper_by("host 4 1 1.24 5 blob\nkernel 2 blob\nkernel 4 blob\n"));
    CHECK(!is_cheaper_by("host 4 1 1.23 5 blob\nkernel 2 blob\nkernel 4 blob\n"));
    // A kernel that reads all of the text costs that much less of its own: own code 1, text 2.
    CHECK(is_cheaper_by("host 4 1 3.24 5 blob\nalone 3 2 blob\n"));
    CHECK(!is_cheaper_by("host 4 1 3.23 5 blob\nalone 3 2 blob\n"));
    // The text that kernels read counts if the host's figure is smaller.
    CHECK(is_cheaper_by("host 4 1 1 2 blob\nalone 9 8 blob\n") == ((4 + 9.0) / ((3 + 8 + 1 * 1.25) * 0.85) <= 1));
    CHECK(is_cheaper_by("host 4 1 1 9 blob\nalone 9 4 blob\n") == ((4 + 9.0) / ((3 + 4 + 5 * 3.0) * 0.85) <= 1));
}

TEST_CASE("the newest line of a host unit counts, and keeps what is known of its kernels") {
    CHECK(is_cheaper_by("kernel 4 blob\nhost 1 0 1 1 blob\nhost 5 2 9 8 blob\n"));
    CHECK(!is_cheaper_by("kernel 4 blob\nhost 5 2 9 8 blob\nhost 5 2 9 1 blob\n"));
    CHECK(!is_cheaper_by("kernel 9 blob\nhost 5 2 2 2 blob\n"));
    CHECK(is_cheaper_by("alone 3 2 blob\nhost 4 1 3.24 5 blob\n"));
    CHECK(!is_cheaper_by("alone 3 2 blob\nhost 4 1 3.23 5 blob\n"));
}

TEST_CASE("most of the other blobs decide for one of which nothing is known") {
    const std::string cheap = "host 5 2 9 8 cheap\nkernel 4 cheap\n", dear = "refused 0 dear\n";
    CHECK(is_cheaper_by(cheap));
    CHECK(!is_cheaper_by(dear));
    CHECK(is_cheaper_by(cheap + dear));
    CHECK(!is_cheaper_by(cheap + dear + "refused 0 dearer\n"));
    CHECK(is_cheaper_by("host 5 2 9 8 blob\n" + cheap));
    CHECK(!is_cheaper_by("host 5 2 9 8 blob\n" + dear));
    CHECK(is_cheaper_by("whole 6 even\nhost 5 2 9 8 even\nkernel 4 even\n"));
    CHECK(!is_cheaper_by("whole 5.9 even\nhost 5 2 9 8 even\nkernel 4 even\n"));
}

TEST_CASE("lines of costs by kernel that do not parse are left out") {
    for (const char* bad :
         {"refused x blob\n", "refused\n", "refused 0\n", "refused 0 \n", "kernels 4 blob\n", "alone 3 blob\n",
          "host 5 blob\n", "host 5 2 blob\n", "host 5 2 9 blob\n", "host 5 x 9 8 blob\n"}) {
        CAPTURE(bad);
        CHECK(is_cheaper_by(bad));
        CHECK(is_cheaper_by(std::string(bad) + "host 5 2 9 8 blob\nkernel 4 blob\n"));
    }
    CHECK(!is_cheaper_by("refused 0 b\n"));
}

TEST_CASE("a line of a compile's costs is kept with the blob's name, if it is short") {
    const Scratch scratch;
    const ByKernel costs(scratch / "lib", "blob");
    costs.add("kernel 4\nmore");
    costs.add(std::string(201, 'x'));
    costs.add(std::string(200, 'y'));
    CHECK(unit::read_file_of(scratch / "lib") == "kernel 4 blob\n" + std::string(200, 'y') + " blob\n");
}

}  // namespace lazyck::rt
