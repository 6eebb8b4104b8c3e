// Bytes of a connection to HTTP responses.
#pragma once

#include <strings.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "options.h"

constexpr size_t kReadBytes = 64 * 1024;

struct Answer {
  int status = 0;
  std::string_view body;
  bool closes = false;  // the server hangs up after it
};

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

inline bool is(std::string_view text, const char* word) {
  return text.size() == strlen(word) && strncasecmp(text.data(), word, text.size()) == 0;
}

// Whether all chunks are there; their contents are put together in `body`.
inline bool take_chunks(std::string_view rest, std::string& body) {
  body.clear();
  while (true) {
    size_t end = rest.find("\r\n");
    if (end == std::string_view::npos) return false;
    size_t size = strtoul(std::string(rest.substr(0, end)).c_str(), nullptr, 16);
    rest.remove_prefix(end + 2);
    if (rest.size() < size + 2) return false;
    body.append(rest.substr(0, size));
    rest.remove_prefix(size + 2);
    if (size == 0) return true;
  }
}

// Bytes of one connection, until they are a whole response.
class Reader {
 public:
  Reader() : bytes_(kReadBytes) {}

  void reset() { used_ = head_ = 0; }

  char* room() {
    if (bytes_.size() - used_ < kReadBytes / 2) bytes_.resize(bytes_.size() * 2);
    return bytes_.data() + used_;
  }
  size_t room_size() const { return bytes_.size() - used_; }
  void add(size_t count) { used_ += count; }

  // Whether a response is complete. Interim responses (1xx) are dropped.
  bool take(Answer& answer) {
    while (true) {
      std::string_view all(bytes_.data(), used_);
      if (head_ == 0 && !read_head(all)) return false;
      if (answer_.status >= 100 && answer_.status < 200) {
        memmove(bytes_.data(), bytes_.data() + head_, used_ - head_);
        used_ -= head_;
        head_ = 0;
        continue;
      }
      if (chunked_) {
        if (!take_chunks(all.substr(head_), chunks_)) return false;
        answer = answer_;
        answer.body = chunks_;
        return true;
      }
      if (used_ < head_ + length_) return false;
      if (used_ > head_ + length_) fail("the server sent more than was asked for");
      answer = answer_;
      answer.body = all.substr(head_, length_);
      return true;
    }
  }

 private:
  bool read_head(std::string_view all) {
    size_t end = all.find("\r\n\r\n");
    if (end == std::string_view::npos) return false;
    if (all.size() < 12 || all.substr(0, 5) != "HTTP/") fail("this is not HTTP: " + std::string(all.substr(0, 40)));
    answer_ = Answer();
    answer_.status = atoi(all.data() + 9);
    chunked_ = false;
    length_ = 0;
    std::string_view lines = all.substr(0, end);
    size_t at = lines.find("\r\n");
    while (at != std::string_view::npos) {
      size_t begin = at + 2;
      at = lines.find("\r\n", begin);
      std::string_view line = lines.substr(begin, at == std::string_view::npos ? at : at - begin);
      size_t colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
      if (is(name, "content-length")) length_ = strtoul(std::string(value).c_str(), nullptr, 10);
      else if (is(name, "transfer-encoding")) chunked_ = is(value, "chunked");
      else if (is(name, "connection")) answer_.closes = is(value, "close");
    }
    head_ = end + 4;
    return true;
  }

  std::vector<char> bytes_;
  size_t used_ = 0;
  size_t head_ = 0;  // bytes of the head, once it is there
  size_t length_ = 0;
  bool chunked_ = false;
  Answer answer_;
  std::string chunks_;
};
