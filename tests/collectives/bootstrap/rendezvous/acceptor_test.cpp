// The acceptor at its limits: open files, and deadlines.
#include "collectives/bootstrap/rendezvous/acceptor.hpp"

#include <csignal>
#include <deque>
#include <thread>

#include <sys/resource.h>
#include <sys/wait.h>

#include "collectives/bootstrap/rendezvous/rendezvous.hpp"
#include "collectives/bootstrap/rendezvous/sockets.hpp"
#include "tests/collectives/bootstrap/rendezvous/strangers.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

TEST_CASE("idle connections beyond the limit of open files do not end a rank") {
#ifdef __SANITIZE_ADDRESS__
  fmt::print("SKIPPED: UndefinedBehaviorSanitizer needs file descriptors itself\n");
  return;
#endif
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor listening(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto port = listening.local_endpoint().port();
  int welcomed = 0;
  const Acceptor acceptor(std::move(listening), "test", "rank 0",
                          [&](const Handshake&, boost::asio::ip::tcp::socket) { ++welcomed; });
  // The limit holds for the whole process, so the others are another one.
  const pid_t others = ::fork();
  if (others == 0) {
    std::deque<Stranger> idle;
    for (int i = 0; i < 300; ++i) idle.emplace_back(port, "");
    Stranger member(port, bytes_of(Handshake{}));
    member.prove(Handshake{});
    ::pause();
  }
  const int next = ::dup(0);
  ::close(next);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{static_cast<rlim_t>(next) + 20, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::string problem;
  try {
    run_until(io, Deadline::after(Seconds(4)), [&] { return welcomed == 1; });
  } catch (const Error& error) {
    problem = error.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  ::kill(others, SIGKILL);
  ::waitpid(others, nullptr, 0);
  CHECK(problem == "");
  CHECK(welcomed == 1);
}

TEST_CASE("a handshake that completes at the moment of its deadline is accepted") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor listening(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto port = listening.local_endpoint().port();
  int welcomed = 0;
  const Acceptor acceptor(
      std::move(listening), "test", "rank 0",
      [&](const Handshake&, boost::asio::ip::tcp::socket) { ++welcomed; }, Seconds(1));
  const Handshake handshake;
  boost::asio::io_context client_io;
  boost::asio::ip::tcp::socket client(client_io);
  client.connect({boost::asio::ip::address_v4::loopback(), port});
  boost::asio::write(client, boost::asio::buffer(bytes_of(handshake)));
  Challenge challenge;
  run_until(io, Deadline::after(Seconds(30)),
            [&] { return client.available() >= sizeof challenge; });  // accepts and asks
  boost::asio::read(client, boost::asio::buffer(&challenge, sizeof challenge));
  // Nobody runs the handlers while the bytes arrive and the time runs out: both are ready at once.
  boost::asio::write(client, boost::asio::buffer(proof_for(challenge, handshake, "test")));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  CHECK_NOTHROW(run_until(io, Deadline::after(Seconds(0.1)), [] { return false; }));
  CHECK(welcomed == 1);
}

TEST_CASE("a lack of file descriptors is an Error wherever it strikes") {
#ifdef __SANITIZE_ADDRESS__
  // Without a free descriptor, the check of a virtual call reports every call.
  fmt::print("SKIPPED: UndefinedBehaviorSanitizer needs file descriptors itself\n");
  return;
#endif
  const auto with_no_descriptor_left = [](const auto& body) {
    const int next = ::dup(0);  // the lowest free descriptor
    ::close(next);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    std::string text;
    try {
      body();
    } catch (const Error& error) {
      text = error.what();
    } catch (const std::exception& other) {
      text = std::string("not an Error: ") + other.what();
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    return text;
  };
  const std::string sentence =
      "files and connections open, and needs up to two connections to every";
  const Address here = address_of({boost::asio::ip::address_v4::loopback(), 0});
  const auto rank_0 = impatient(0, 2, free_port());
  CHECK(contains(with_no_descriptor_left([&] { Listener listener(here); }), sentence));
  CHECK(contains(with_no_descriptor_left([&] { connect_mesh(rank_0); }), sentence));
}
