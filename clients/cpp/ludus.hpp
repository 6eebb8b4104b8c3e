// A game's side of Ludus' protocol (docs/protocol.md), in one header: C++17 and POSIX sockets, nothing else.
//
//     ludus::Game game("127.0.0.1", 8000, "session-1");
//     game.start("map 7");
//     std::string action = game.tick(observation);
//     game.end("won");
//
// Bodies are std::string as plain bytes. Steps are numbered, so that one whose connection broke is sent again and never
// runs twice. What goes wrong is thrown as ludus::Error, whose `code` is the protocol's, or
//     unreachable       no connection could be made; the step was not run
//     outcome_unknown   the connection broke, and the step was not or cannot be repeated; the next is one of its own
//     not_http          what came back is no HTTP answer
//     answer_too_large  the answer is larger than Options::max_answer_bytes
//     bad_request       with the status 0: an option cannot be sent as a header
// One Game is for one thread. There is no TLS: put a proxy in front of the server, or a tunnel.
#ifndef LUDUS_HPP
#define LUDUS_HPP

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ludus {

class Error : public std::runtime_error {
public:
    Error(std::string code, int status, std::string detail, std::map<std::string, std::string> members = {})
        : std::runtime_error(code + " (" + std::to_string(status) + "): " + detail), code(std::move(code)), status(status),
          detail(std::move(detail)), members(std::move(members)) {}

    std::string code;
    int status;  // of HTTP; 0 if there was no answer
    std::string detail;
    std::map<std::string, std::string> members;  // further members of the problem; numbers as text
};

struct Options {
    std::string run;        // which life of the game this is; with another one than before, its old session is ended
    bool numbered = true;   // whether steps are numbered, and so may be sent again
    int timeout_ms = 10000; // for one sending of a step and its answer
    int retries = 5;        // how often a step is sent again
    std::size_t max_answer_bytes = 64 << 20;  // of an answer's body; a larger one is refused
    std::string token;      // bearer token of the server
    std::string secret;     // secret to sign with
    std::string key = "game";
    std::string path = "/step";
};

namespace detail {

// SHA-256 (FIPS 180-4) and HMAC (RFC 2104).
class Sha256 {
public:
    void update(const void* data, std::size_t size) {
        const auto* bytes = static_cast<const unsigned char*>(data);
        total_ += size;
        while (size > 0) {
            const std::size_t part = std::min(size, block_.size() - filled_);
            std::memcpy(block_.data() + filled_, bytes, part);
            filled_ += part;
            bytes += part;
            size -= part;
            if (filled_ == block_.size()) {
                compress();
                filled_ = 0;
            }
        }
    }

    std::string digest() {
        const std::uint64_t bits = total_ * 8;
        const unsigned char one = 0x80, zero = 0;
        update(&one, 1);
        while (filled_ != 56) update(&zero, 1);
        unsigned char length[8];
        for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
        update(length, 8);
        std::string out;
        for (const std::uint32_t word : state_)
            for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>((word >> shift) & 0xff));
        return out;
    }

private:
    static std::uint32_t turn(std::uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

    void compress() {
        static const std::uint32_t k[64] = {
            0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
            0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
            0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
            0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
            0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
            0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
            0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
            0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
        std::uint32_t w[64];
        for (int i = 0; i < 16; ++i)
            w[i] = std::uint32_t(block_[4 * i]) << 24 | std::uint32_t(block_[4 * i + 1]) << 16 |
                   std::uint32_t(block_[4 * i + 2]) << 8 | std::uint32_t(block_[4 * i + 3]);
        for (int i = 16; i < 64; ++i) {
            const std::uint32_t s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >> 3);
            const std::uint32_t s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >> 10);
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        std::array<std::uint32_t, 8> v = state_;
        for (int i = 0; i < 64; ++i) {
            const std::uint32_t s1 = turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25);
            const std::uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
            const std::uint32_t s0 = turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22);
            const std::uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
        }
        for (int i = 0; i < 8; ++i) state_[i] += v[i];
    }

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<unsigned char, 64> block_{};
    std::size_t filled_ = 0;
    std::uint64_t total_ = 0;
};

inline std::string sha256(const std::string& data) {
    Sha256 hash;
    hash.update(data.data(), data.size());
    return hash.digest();
}

inline std::string hex(const std::string& bytes) {
    static const char digits[] = "0123456789abcdef";
    std::string out;
    for (const unsigned char byte : bytes) {
        out.push_back(digits[byte >> 4]);
        out.push_back(digits[byte & 15]);
    }
    return out;
}

inline std::string hmac_sha256(std::string secret, const std::string& text) {
    if (secret.size() > 64) secret = sha256(secret);
    secret.resize(64, '\0');
    std::string inner = secret, outer = secret;
    for (char& c : inner) c = static_cast<char>(c ^ 0x36);
    for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
    return sha256(outer + sha256(inner + text));
}

inline std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

// The members of a flat JSON object: strings unescaped, everything else as it is written. Empty if it is no object.
class Json {
public:
    static std::map<std::string, std::string> members(const std::string& text) {
        Json json(text);
        std::map<std::string, std::string> found;
        json.blank();
        if (!json.take('{')) return found;
        for (json.blank(); json.at_ < text.size() && text[json.at_] == '"'; json.blank()) {
            const std::string name = json.string();
            json.blank();
            if (!json.take(':')) break;
            json.blank();
            found[name] = json.at_ < text.size() && text[json.at_] == '"' ? json.string() : json.raw();
            json.blank();
            if (!json.take(',')) break;
        }
        return found;
    }

private:
    explicit Json(const std::string& text) : text_(text) {}

    void blank() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    }

    bool take(char c) {
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    std::string string() {
        std::string out;
        for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (text_[at_] != '\\' || at_ + 1 >= text_.size()) {
                out.push_back(text_[at_]);
                continue;
            }
            const char c = text_[++at_];
            if (c == 'n') out.push_back('\n');
            else if (c == 't') out.push_back('\t');
            else if (c == 'r') out.push_back('\r');
            else if (c == 'u') { out.push_back('?'); at_ += 4; }
            else out.push_back(c);
        }
        ++at_;
        return out;
    }

    std::string raw() {
        const std::size_t begin = at_;
        for (int depth = 0; at_ < text_.size(); ++at_) {
            const char c = text_[at_];
            if (c == '"') { string(); --at_; continue; }
            if (c == '{' || c == '[') ++depth;
            if ((c == '}' || c == ']') && depth-- == 0) break;
            if (c == ',' && depth == 0) break;
        }
        std::string out = text_.substr(begin, at_ - begin);
        while (!out.empty() && std::isspace(static_cast<unsigned char>(out.back()))) out.pop_back();
        return out;
    }

    const std::string& text_;
    std::size_t at_ = 0;
};

struct Broken : std::runtime_error {
    Broken(const std::string& what, bool was_sent) : std::runtime_error(what), was_sent(was_sent) {}
    bool was_sent;
};

struct Response {
    int status = 0;
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
};

// One keep-alive connection; everything on it ends at a point in time.
class Connection {
public:
    using Clock = std::chrono::steady_clock;

    Connection(std::string host, int port, std::size_t max_body) : host_(std::move(host)), port_(port), max_body_(max_body) {}
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() { close(); }

    void close() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
        buffer_.clear();
    }

    // Whether the server hung up or sent something: between two answers nothing else arrives.
    bool has_ended() const {
        pollfd poll_for{fd_, POLLIN, 0};
        return fd_ < 0 || ::poll(&poll_for, 1, 0) > 0;
    }

    Response exchange(const std::string& request, int timeout_ms) {
        until_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
        if (fd_ < 0) connect();
        Response response;
        try {
            send(request);
        } catch (const Broken&) {
            if (!has_ended() || !answered(response)) throw;
            close();
            return response;
        }
        response = read();
        const auto found = response.headers.find("connection");
        if (found != response.headers.end() && lower(found->second) == "close") close();
        return response;
    }

private:
    void connect() {
        addrinfo hints{};
        hints.ai_socktype = SOCK_STREAM;
        addrinfo* found = nullptr;
        const int failure = ::getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found);
        if (failure != 0) throw Broken(std::string("no such host: ") + ::gai_strerror(failure), false);
        std::string why = "no address";
        for (addrinfo* each = found; each != nullptr && fd_ < 0; each = each->ai_next) why = try_connect(*each);
        ::freeaddrinfo(found);
        if (fd_ < 0) throw Broken(why, false);
    }

    std::string try_connect(const addrinfo& to) {
        const int fd = ::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol);
        if (fd < 0) return std::strerror(errno);
        int error = 0;
        if (::connect(fd, to.ai_addr, to.ai_addrlen) != 0) {
            error = errno;
            if (error == EINPROGRESS) {
                socklen_t size = sizeof error;
                error = !wait(fd, POLLOUT) ? ETIMEDOUT
                        : ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 ? errno : error;
            }
        }
        if (error != 0) {
            ::close(fd);
            return std::strerror(error);
        }
        const int on = 1;
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        fd_ = fd;
        return "";
    }

    bool wait(int fd, short events) const {
        for (;;) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now()).count();
            if (left <= 0) return false;
            pollfd poll_for{fd, events, 0};
            const int ready = ::poll(&poll_for, 1, static_cast<int>(std::min<long long>(left, 1 << 30)));
            if (ready > 0) return true;
            if (ready < 0 && errno != EINTR) return false;
        }
    }

    void send(const std::string& data) {
        for (std::size_t at = 0; at < data.size();) {
            const ssize_t sent = ::send(fd_, data.data() + at, data.size() - at, MSG_NOSIGNAL);
            if (sent >= 0) at += static_cast<std::size_t>(sent);
            else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                if (!wait(fd_, POLLOUT)) throw Broken("the request could not be sent in time", true);
            } else if (errno != EINTR) throw Broken(std::strerror(errno), true);
        }
    }

    void more() {
        char part[65536];
        if (Clock::now() >= until_) throw Broken("no answer in time", true);  // also if a little comes all the time
        for (;;) {
            const ssize_t got = ::recv(fd_, part, sizeof part, 0);
            if (got > 0) {
                buffer_.append(part, static_cast<std::size_t>(got));
                return;
            }
            if (got == 0) throw Broken("the server hung up before the answer", true);
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                if (!wait(fd_, POLLIN)) throw Broken("no answer in time", true);
            } else if (errno != EINTR) throw Broken(std::strerror(errno), true);
        }
    }

    // An answer that came before all was sent: the server wants no more of it.
    bool answered(Response& response) {
        try {
            response = read();
            return true;
        } catch (const std::runtime_error&) {
            return false;  // the reason for the broken send is reported
        }
    }

    // One line of an answer's head, of its chunks' sizes, or of its trailers; `left` is how much more of those is read.
    std::string line(std::size_t& left) {
        std::size_t end;
        while ((end = buffer_.find("\r\n")) == std::string::npos) {
            if (buffer_.size() > left) break;
            more();
        }
        if (end == std::string::npos || end + 2 > left) throw Error("not_http", 0, "the headers of the answer do not end");
        left -= end + 2;
        std::string out = buffer_.substr(0, end);
        buffer_.erase(0, end + 2);
        return out;
    }

    // A length as a server may write it: digits, nothing else.
    static std::size_t length(const std::string& text, int base) {
        const std::size_t end = std::min(text.find_last_not_of(" \t") + 1, text.size());
        std::size_t value = 0;
        for (std::size_t at = 0; at < end; ++at) {
            const int c = std::tolower(static_cast<unsigned char>(text[at]));
            const int digit = c >= '0' && c <= '9' ? c - '0' : base == 16 && c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
            if (digit == base) throw Error("not_http", 0, "'" + text.substr(0, 40) + "' is no length");
            value = std::min(value, max_length / 32) * base + digit;  // what is larger is too large in any case
        }
        if (end == 0) throw Error("not_http", 0, "a length is missing");
        return value;
    }

    void expect_within(std::size_t size, int status) const {
        if (size > max_body_)
            throw Error("answer_too_large", status, "the answer has more than " + std::to_string(max_body_) +
                                                    " bytes; Options::max_answer_bytes is the limit");
    }

    std::string take(std::size_t size) {
        while (buffer_.size() < size) more();
        std::string out = buffer_.substr(0, size);
        buffer_.erase(0, size);
        return out;
    }

    Response read() {
        Response response;
        std::size_t left = max_head;
        do {
            const std::string status = line(left);
            if (status.compare(0, 7, "HTTP/1.") != 0 || status.size() < 12) throw Error("not_http", 0, status.substr(0, 80));
            response.status = std::atoi(status.c_str() + 9);
            response.headers.clear();
            for (std::string each = line(left); !each.empty(); each = line(left)) {
                const std::size_t colon = each.find(':');
                if (colon == std::string::npos) throw Error("not_http", 0, each.substr(0, 80));
                const std::size_t begin = each.find_first_not_of(" \t", colon + 1);
                response.headers[lower(each.substr(0, colon))] = begin == std::string::npos ? "" : each.substr(begin);
            }
        } while (response.status >= 100 && response.status < 200);
        if (response.status < 200 || response.status > 599) throw Error("not_http", 0, "the answer has no status");
        const auto given = response.headers.find("content-length");
        const auto coding = response.headers.find("transfer-encoding");
        if (coding != response.headers.end() && lower(coding->second) == "chunked") {
            for (;;) {
                std::size_t in_line = max_head;
                const std::string size_line = line(in_line);
                const std::size_t size = length(size_line.substr(0, size_line.find(';')), 16);
                expect_within(size, response.status);
                expect_within(response.body.size() + size, response.status);
                if (size == 0) break;
                response.body += take(size);
                if (take(2) != "\r\n") throw Error("not_http", 0, "a chunk of the answer is longer than it says");
            }
            while (!line(left).empty()) {}  // trailers
        } else if (given != response.headers.end()) {
            const std::size_t size = length(given->second, 10);
            expect_within(size, response.status);
            response.body = take(size);
        } else {
            throw Error("not_http", response.status, "the answer has no content-length");
        }
        return response;
    }

    static constexpr std::size_t max_head = 64 << 10, max_length = std::size_t(-1);

    std::string host_;
    int port_;
    std::size_t max_body_;
    int fd_ = -1;
    std::string buffer_;
    Clock::time_point until_;
};

}  // namespace detail

class Game {
public:
    Game(std::string host, int port, std::string session, Options options = {})
        : host_(host), port_(port), session_(std::move(session)), options_(std::move(options)),
          connection_(std::move(host), port, options_.max_answer_bytes) {
        check_header("session", session_);
        check_header("run", options_.run);
        check_header("token", options_.token);
        check_header("key", options_.key);
    }

    // Begin a session. `version`: a number, a tag, "latest" or "follow", of `model` or of all models.
    std::string start(const std::string& data = "", const std::string& model = "", const std::string& version = "") {
        check_header("model", model);
        check_header("version", version);
        number_ = 0;
        settle();
        versions_.clear();
        Headers extras;
        if (!options_.run.empty()) extras.emplace_back("run", options_.run);
        if (!model.empty()) extras.emplace_back("model", model);
        if (!version.empty()) extras.emplace_back("version", version);
        return step("start", data, extras);
    }

    // One step. `deadline_ms`: how long the game waits for this answer; 0: as long as it takes.
    std::string tick(const std::string& data, int deadline_ms = 0) {
        return step("tick", data, deadline(deadline_ms), deadline_ms);
    }

    std::string end(const std::string& data = "") { return step("end", data, {}); }

    // A tick of no session, on the actor that all such ticks share.
    std::string stateless(const std::string& data, int deadline_ms = 0) {
        return step("", data, deadline(deadline_ms), deadline_ms);
    }

    // The model versions that the session plays, by name, as of the last answer.
    const std::map<std::string, long long>& versions() const { return versions_; }

    const std::string& session() const { return session_; }

    // Hang up. The session stays until its lease runs out.
    void close() { connection_.close(); }

private:
    using Headers = std::vector<std::pair<std::string, std::string>>;

    static constexpr int kAfterDeadlineMs = 250;  // the server keeps deadlines itself; after this it hangs

    static Headers deadline(int ms) { return ms > 0 ? Headers{{"deadline_ms", std::to_string(ms)}} : Headers{}; }

    // Soon after its deadline a step ends in `deadline_exceeded`, also if the server does not answer at all.
    std::string step(const std::string& kind, const std::string& data, const Headers& extras, int deadline_ms = 0) {
        using Clock = std::chrono::steady_clock;
        const auto until = Clock::now() + std::chrono::milliseconds(deadline_ms + kAfterDeadlineMs);
        const bool may_repeat = options_.numbered && !kind.empty();
        if (!may_repeat && connection_.has_ended()) connection_.close();
        if (!kind.empty() && is_open_) {  // another step than the last: not to be taken for a repetition of it
            ++number_;
            is_open_ = false;
        }
        bool may_have_run = false;
        int left = options_.retries;
        int pause_ms = 0;  // the first time at once: a connection that was idle for too long is nobody's fault
        for (;; pause_ms = pause_ms == 0 ? 100 : std::min(pause_ms * 2, 1000), --left) {
            int wait_ms = pause_ms;
            try {
                int timeout_ms = options_.timeout_ms;
                if (deadline_ms > 0) {
                    const auto time_left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
                    timeout_ms = std::clamp(static_cast<int>(time_left.count()), 1, timeout_ms);
                }
                const detail::Response response = connection_.exchange(request(kind, data, extras), timeout_ms);
                if (response.status == 200) {
                    if (!kind.empty()) ran();
                    keep_versions(response);
                    return response.body;
                }
                const Error error = problem(response);
                const bool has_run = error.code == "actor_failed" || error.code == "invalid_observation" ||
                                     error.code == "deadline_exceeded";
                if (has_run && (kind == "tick" || kind == "end")) ran();
                if (error.code == "server_failed" && !kind.empty()) lose();  // it may have run
                if (!kind.empty() && finds(error)) {
                    ++left;  // this sending does not count
                    continue;
                }
                const bool not_run = error.code == "overloaded" || error.code == "shutting_down" ||
                                     error.code == "timeout" || error.code == "replayed";
                if (!not_run || left <= 0) throw error;
                const auto after = response.headers.find("retry-after");
                if (after != response.headers.end())
                    wait_ms = std::max(wait_ms, 1000 * std::clamp(std::atoi(after->second.c_str()), 0, 5));
                if (deadline_ms > 0 && Clock::now() + std::chrono::milliseconds(wait_ms) >= until) throw error;
            } catch (const detail::Broken& broken) {
                connection_.close();
                may_have_run = may_have_run || broken.was_sent;
                if (broken.was_sent && !kind.empty()) lose();
                if (deadline_ms > 0 && Clock::now() + std::chrono::milliseconds(wait_ms) >= until)
                    throw Error("deadline_exceeded", 504, std::string("no answer by the deadline: ") + broken.what());
                if (broken.was_sent && !may_repeat) throw Error("outcome_unknown", 0, broken.what());
                if (left <= 0) throw Error(may_have_run ? "outcome_unknown" : "unreachable", 0, broken.what());
            } catch (const Error& error) {
                if (error.code == "not_http" || error.code == "answer_too_large") {
                    connection_.close();
                    if (!kind.empty()) lose();
                }
                throw;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
        }
    }

    // The server has said which numbers are taken.
    void settle() {
        doubted_ = -1;
        is_open_ = false;
    }

    void ran() {
        ++number_;
        settle();
    }

    // The present step was sent, and it is not known whether it ran: its number may be taken or free.
    void lose() {
        is_open_ = true;
        if (doubted_ < 0) doubted_ = number_;
    }

    // Whether the problem tells which number was free; the step has it now.
    bool finds(const Error& error) {
        const auto member = error.members.find("expected");
        if (error.code != "out_of_order" || doubted_ < 0 || member == error.members.end()) return false;
        const long long expected = std::atoll(member->second.c_str());
        if (expected < doubted_ || expected >= number_) return false;
        number_ = expected;
        settle();
        return true;
    }

    static void check_header(const std::string& name, const std::string& value) {
        bool is_good = value.empty() || (value.front() != ' ' && value.back() != ' ');
        for (const char c : value) is_good = is_good && c >= ' ' && c <= '~';
        if (!is_good)
            throw Error("bad_request", 0, "this " + name + " cannot be sent: a header is printable ASCII without blanks "
                                          "around it; choose another " + name);
    }

    std::string request(const std::string& kind, const std::string& data, const Headers& extras) {
        const std::string number = options_.numbered && !kind.empty() ? std::to_string(number_) : "";
        const std::string session = kind.empty() ? "" : session_;
        std::string head = "POST " + options_.path + " HTTP/1.1\r\nhost: " + host_ + ":" + std::to_string(port_) + "\r\n";
        if (!kind.empty()) head += "session: " + session + "\r\nstep_kind: " + kind + "\r\n";
        if (!number.empty()) head += "step: " + number + "\r\n";
        for (const auto& [name, value] : extras) head += name + ": " + value + "\r\n";
        if (!options_.token.empty()) head += "authorization: Bearer " + options_.token + "\r\n";
        if (!options_.secret.empty()) {
            const auto now = std::chrono::system_clock::now().time_since_epoch();
            const long long ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
            signed_ms_ = std::max(ms, signed_ms_ + 1);
            const std::string time = std::to_string(signed_ms_);
            std::string text = options_.key + "\n" + time + "\n" + session + "\n" + kind + "\n" + number + "\n" +
                               detail::hex(detail::sha256(data));
            for (const auto& [name, value] : extras) text += "\n" + name + ":" + value;  // run, model, version, deadline_ms
            head += "key: " + options_.key + "\r\ntime: " + time + "\r\ntoken: " +
                    detail::hex(detail::hmac_sha256(options_.secret, text)) + "\r\n";
        }
        return head + "content-length: " + std::to_string(data.size()) + "\r\n\r\n" + data;
    }

    static Error problem(const detail::Response& response) {
        std::map<std::string, std::string> members = detail::Json::members(response.body);
        if (members.count("code") == 0) return Error("http", response.status, response.body.substr(0, 200));
        const std::string code = members["code"], detail = members["detail"];
        for (const char* name : {"type", "code", "title", "status", "detail"}) members.erase(name);
        return Error(code, response.status, detail, members);
    }

    void keep_versions(const detail::Response& response) {
        const auto found = response.headers.find("version");
        if (found == response.headers.end()) return;
        versions_.clear();
        for (std::size_t at = 0; at < found->second.size();) {
            const std::size_t end = std::min(found->second.find(',', at), found->second.size());
            const std::string pair = found->second.substr(at, end - at);
            const std::size_t equals = pair.rfind('=');
            if (equals != std::string::npos) versions_[pair.substr(0, equals)] = std::atoll(pair.c_str() + equals + 1);
            at = end + 1;
        }
    }

    std::string host_;
    int port_;
    std::string session_;
    Options options_;
    detail::Connection connection_;
    long long number_ = 0;
    long long doubted_ = -1;  // the first number that may be free though a step was sent by it; -1: none
    bool is_open_ = false;    // whether number_ itself is such a one: the present step's, or the last one's
    long long signed_ms_ = 0;
    std::map<std::string, long long> versions_;
};

}  // namespace ludus

#endif  // LUDUS_HPP
