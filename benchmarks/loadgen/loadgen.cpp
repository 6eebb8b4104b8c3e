// A load generator for the game protocol: many keep-alive connections, one thread, epoll.
//
//   loadgen HOST PORT --connections 64 --seconds 4 --body-bytes 1024 [--sessions] [--rate R] ...
//
// Each connection has one request outstanding. With --sessions each is a session of its own: `start` with step 0, ticks
// numbered 1, 2, 3, ..., and `end` when the time is over. Only ticks are timed and counted.
//
// Closed loop (without --rate): the next tick is sent when the last was answered. Counted is what was answered within
// the window; latencies run from the send.
// Open loop (--rate R): tick n is due at begin + n/R, on connection n mod C. Counted is what was due within the window,
// and waited for after it. Latencies run from when it was due, even if it had to wait for the one before it: a server
// that stalls is charged for all that should have been sent by then. Waits run from when it was sent: what a game
// spends on an answer, which does not play on without it.
//
// The last line of stdout is one JSON object. Exit code 0: the load ran; errors, if any, are in the metrics. 1: it could
// not run. 2: usage.

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "answer.h"
#include "options.h"

namespace {

using Nanos = int64_t;
constexpr Nanos kSecond = 1'000'000'000;
constexpr Nanos kPatience = 15 * kSecond;  // for starts, for ends, and for answers after the window
constexpr int kMaxReconnects = 1000;

Nanos now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Nanos(t.tv_sec) * kSecond + t.tv_nsec;
}

double cpu_seconds() {
  rusage use;
  getrusage(RUSAGE_SELF, &use);
  return double(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + 1e-6 * double(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

enum class Kind { start, tick, end };

struct Connection {
  int fd = -1;
  std::string session;
  uint64_t step = 0;    // the number of the next step
  uint64_t turn = 0;    // ticks sent, to choose the body
  Kind kind = Kind::tick;
  bool busy = false;    // a request is outstanding
  bool counts = false;  // open loop: it was due within the window
  Nanos since = 0;      // closed loop: when it was sent; open loop: when it was due
  Nanos sent_at = 0;
  std::deque<Nanos> due;
  char head[512];
  size_t head_size = 0;
  const std::string* body = nullptr;
  size_t sent = 0;
  bool wants_write = false;
  int reconnects = 0;
  Reader reader;
};

class Load {
 public:
  explicit Load(const Options& options) : o_(options), bodies_(read_bodies(options)), connections_(options.connections) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) fail("epoll is not there");
    for (size_t i = 0; i < connections_.size(); i++) {
      char name[64];
      snprintf(name, sizeof name, "lg-%d-%llx-%03zu", int(getpid()), (unsigned long long)now(), i);
      connections_[i].session = name;
      connections_[i].turn = i;
      open(connections_[i]);
    }
    latencies_.reserve(1 << 20);
  }

  void run() {
    if (o_.sessions) all(Kind::start);
    begin_ = now();
    window_begin_ = begin_ + Nanos(o_.warmup * 1e9);
    window_end_ = window_begin_ + Nanos(o_.seconds * 1e9);
    o_.rate > 0 ? run_open() : run_closed();
    end_window();
    finish_ticks();
    if (o_.sessions) all(Kind::end);
  }

  void print() {
    std::sort(latencies_.begin(), latencies_.end());
    std::sort(waits_.begin(), waits_.end());
    double seconds = o_.seconds;
    size_t requests = latencies_.size();
    printf("{\"requests\": %zu, \"seconds\": %.6f, \"requests_per_second\": %.3f, ", requests, seconds,
           double(requests) / seconds);
    printf("\"p50_us\": %.1f, \"p95_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, ", percentile(latencies_, 50),
           percentile(latencies_, 95), percentile(latencies_, 99), percentile(latencies_, 100));
    printf("\"wait_p50_us\": %.1f, \"wait_p95_us\": %.1f, \"wait_p99_us\": %.1f, \"wait_max_us\": %.1f, ",
           percentile(waits_, 50), percentile(waits_, 95), percentile(waits_, 99), percentile(waits_, 100));
    printf("\"errors\": %llu, \"statuses\": {", (unsigned long long)errors_);
    const char* between = "";
    for (const auto& [status, count] : statuses_) {
      printf("%s\"%d\": %llu", between, status, (unsigned long long)count);
      between = ", ";
    }
    printf("}, \"wrong\": %llu, \"disconnects\": %llu, \"unanswered\": %llu, ", (unsigned long long)wrong_,
           (unsigned long long)disconnects_, (unsigned long long)unanswered_);
    printf("\"bytes\": %llu, \"cpu_seconds\": %.6f, \"connections\": %d, \"rate\": %.3f}\n", (unsigned long long)bytes_,
           cpu_, o_.connections, o_.rate);
  }

 private:
  // -- connections --

  void open(Connection& c) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(o_.host.c_str(), o_.port.c_str(), &hints, &found)) fail("no such host: " + o_.host);
    c.fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c.fd < 0 || connect(c.fd, found->ai_addr, found->ai_addrlen)) {
      fail("cannot connect to " + o_.host + ":" + o_.port + ": " + strerror(errno));
    }
    freeaddrinfo(found);
    int on = 1;
    setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c.fd, F_SETFL, fcntl(c.fd, F_GETFL) | O_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &c;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, c.fd, &event);
    c.reader.reset();
    c.wants_write = false;
  }

  void reopen(Connection& c) {
    close(c.fd);
    if (++c.reconnects > kMaxReconnects) fail("the server hangs up again and again");
    open(c);
  }

  // The server hung up. What was asked is asked again: a numbered step may be repeated.
  void lost(Connection& c) {
    disconnects_++;
    errors_ += c.busy;
    reopen(c);
    if (c.busy) {
      c.sent = 0;
      flush(c);
    }
  }

  // -- requests --

  void send_step(Connection& c, Kind kind, Nanos since) {
    static const std::string kEmpty;
    static const char* kWords[] = {"start", "tick", "end"};
    c.kind = kind;
    c.body = kind == Kind::tick ? &bodies_[c.turn++ % bodies_.size()] : &kEmpty;
    int size;
    if (o_.sessions) {
      size = snprintf(c.head, sizeof c.head,
                      "POST %s HTTP/1.1\r\nhost: %s:%s\r\nsession: %s\r\nstep_kind: %s\r\nstep: %llu\r\n"
                      "content-length: %zu\r\n\r\n",
                      o_.path.c_str(), o_.host.c_str(), o_.port.c_str(), c.session.c_str(), kWords[int(kind)],
                      (unsigned long long)c.step, c.body->size());
    } else {
      size = snprintf(c.head, sizeof c.head, "POST %s HTTP/1.1\r\nhost: %s:%s\r\ncontent-length: %zu\r\n\r\n",
                      o_.path.c_str(), o_.host.c_str(), o_.port.c_str(), c.body->size());
    }
    if (size < 0 || size_t(size) >= sizeof c.head) fail("host and path are too long");
    c.head_size = size_t(size);
    c.sent = 0;
    c.busy = true;
    c.since = since;
    c.sent_at = o_.rate > 0 ? now() : since;
    flush(c);
  }

  void flush(Connection& c) {
    size_t total = c.head_size + c.body->size();
    while (c.sent < total) {
      iovec parts[2];
      int count = 0;
      if (c.sent < c.head_size) {
        parts[count++] = {c.head + c.sent, c.head_size - c.sent};
        if (!c.body->empty()) parts[count++] = {const_cast<char*>(c.body->data()), c.body->size()};
      } else {
        size_t at = c.sent - c.head_size;
        parts[count++] = {const_cast<char*>(c.body->data()) + at, c.body->size() - at};
      }
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = size_t(count);
      ssize_t done = sendmsg(c.fd, &message, MSG_NOSIGNAL);
      if (done < 0) {
        if (errno == EAGAIN) break;
        return;  // the connection is gone: reading tells
      }
      c.sent += size_t(done);
      if (in_window_) bytes_ += uint64_t(done);
    }
    want_write(c, c.sent < total);
  }

  void want_write(Connection& c, bool wants) {
    if (c.wants_write == wants) return;
    c.wants_write = wants;
    epoll_event event{};
    event.events = EPOLLIN | (wants ? uint32_t(EPOLLOUT) : 0u);
    event.data.ptr = &c;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, c.fd, &event);
  }

  // -- answers --

  void read(Connection& c) {
    while (true) {
      char* room = c.reader.room();
      size_t size = c.reader.room_size();
      ssize_t got = recv(c.fd, room, size, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        lost(c);
        return;
      }
      if (got < 0) return;
      c.reader.add(size_t(got));
      if (in_window_) bytes_ += uint64_t(got);
      Answer answer;
      if (c.reader.take(answer)) {
        answered(c, answer);
        return;
      }
      if (size_t(got) < size) return;
    }
  }

  void answered(Connection& c, const Answer& answer) {
    Nanos at = now();
    if (!c.busy) fail("the server answered what was not asked");
    c.busy = false;
    if (answer.status != 200) {
      errors_++;
      statuses_[answer.status]++;
    } else if (c.kind == Kind::tick) {
      bool right = (!o_.expect_echo || answer.body == *c.body) &&
                   (o_.expect_bytes < 0 || answer.body.size() == size_t(o_.expect_bytes));
      wrong_ += !right;
    }
    // The steps that the actor ran used up their number; the others are to be sent again.
    if (answer.status == 200 || answer.status == 500 || answer.status == 504) c.step++;
    c.reader.reset();
    if (answer.closes) reopen(c);
    if (c.kind != Kind::tick) return;
    if (o_.rate > 0) {
      if (c.counts) {
        latencies_.push_back(at - c.since);
        waits_.push_back(at - c.sent_at);
      }
      send_due(c);
    } else {
      if (at >= window_begin_ && at < window_end_) {
        latencies_.push_back(at - c.since);
        waits_.push_back(at - c.sent_at);
      }
      if (at < window_end_) send_step(c, Kind::tick, at);
    }
  }

  // -- phases --

  // Start or end all sessions, and wait until that is answered.
  void all(Kind kind) {
    for (Connection& c : connections_) send_step(c, kind, now());
    Nanos until = now() + kPatience;
    while (num_busy()) {
      if (now() > until) fail(std::string(kind == Kind::start ? "start" : "end") + " was not answered");
      poll(100 * 1'000'000);
    }
  }

  void run_closed() {
    for (Connection& c : connections_) send_step(c, Kind::tick, now());
    Nanos t;
    while ((t = now()) < window_end_) {
      mark(t);
      poll(std::min<Nanos>(50 * 1'000'000, edge(t) - t));
    }
  }

  void run_open() {
    prctl(PR_SET_TIMERSLACK, 1UL);
    double gap = 1e9 / o_.rate;
    uint64_t n = 0;
    Nanos t, next = begin_;
    while ((t = now()) < window_end_) {
      mark(t);
      while (next <= t && next < window_end_) {
        Connection& c = connections_[n % connections_.size()];
        c.due.push_back(next);
        if (!c.busy) send_due(c);
        next = begin_ + Nanos(double(++n) * gap);
      }
      poll(std::min(next, edge(t)) - now());
    }
    while (next < window_end_) {  // due within the window, but it passed while we were busy
      connections_[n % connections_.size()].due.push_back(next);
      next = begin_ + Nanos(double(++n) * gap);
    }
    for (Connection& c : connections_) {
      if (!c.busy) send_due(c);
    }
  }

  void send_due(Connection& c) {
    if (c.due.empty()) return;
    Nanos due = c.due.front();
    c.due.pop_front();
    c.counts = due >= window_begin_ && due < window_end_;
    send_step(c, Kind::tick, due);
  }

  // What is outstanding after the window is waited for; in the open loop it counts.
  void finish_ticks() {
    Nanos until = now() + kPatience;
    while (num_busy() && now() < until) poll(100 * 1'000'000);
    for (Connection& c : connections_) {
      if (!c.busy) continue;
      unanswered_ += 1 + c.due.size();
      errors_ += 1 + c.due.size();
      if (o_.rate > 0) {
        latencies_.push_back(now() - c.since);
        waits_.push_back(now() - c.sent_at);
        for (Nanos due : c.due) latencies_.push_back(now() - due);
        c.due.clear();
      }
    }
    if (unanswered_) {
      print();
      fail("some ticks were not answered; their sessions were left as they are");
    }
  }

  // The window's edges: CPU time is taken at both.
  void mark(Nanos t) {
    if (!in_window_ && !measured_ && t >= window_begin_) {
      in_window_ = true;
      cpu_begin_ = cpu_seconds();
    }
  }

  void end_window() {
    if (!in_window_) cpu_begin_ = cpu_seconds();
    in_window_ = false;
    measured_ = true;
    cpu_ = cpu_seconds() - cpu_begin_;
  }

  Nanos edge(Nanos t) const { return t < window_begin_ ? window_begin_ : window_end_; }

  void poll(Nanos timeout) {
    epoll_event events[256];
    timeout = std::max<Nanos>(0, timeout);
    timespec t{time_t(timeout / kSecond), long(timeout % kSecond)};
    int count = epoll_pwait2(epoll_, events, 256, &t, nullptr);
    if (count < 0 && errno != EINTR) fail(std::string("epoll_pwait2: ") + strerror(errno));
    for (int i = 0; i < count; i++) {
      Connection& c = *static_cast<Connection*>(events[i].data.ptr);
      if (events[i].events & EPOLLOUT) flush(c);
      if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read(c);
    }
  }

  int num_busy() const {
    return int(std::count_if(connections_.begin(), connections_.end(), [](const Connection& c) { return c.busy; }));
  }

  // In µs, by the nearest rank.
  static double percentile(const std::vector<Nanos>& sorted, double p) {
    if (sorted.empty()) return 0.0;
    size_t rank = size_t(p / 100 * double(sorted.size()) + 0.999999);
    return double(sorted[std::min(sorted.size(), std::max<size_t>(rank, 1)) - 1]) / 1e3;
  }

  const Options o_;
  const std::vector<std::string> bodies_;
  std::vector<Connection> connections_;
  int epoll_ = -1;
  Nanos begin_ = 0, window_begin_ = 0, window_end_ = 0;
  bool in_window_ = false, measured_ = false;
  double cpu_begin_ = 0.0, cpu_ = 0.0;
  std::vector<Nanos> latencies_, waits_;
  std::map<int, uint64_t> statuses_;  // of answers other than 200
  uint64_t errors_ = 0, wrong_ = 0, disconnects_ = 0, unanswered_ = 0, bytes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options = parse(argc, argv);
  Load load(options);
  load.run();
  load.print();
  return 0;
}
