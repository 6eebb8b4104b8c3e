// What the load generator is asked for, and what it says when it cannot go on.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

[[noreturn]] inline void fail(const std::string& why) {
  fprintf(stderr, "loadgen: %s\n", why.c_str());
  exit(1);
}

struct Options {
  std::string host, port;
  int connections = 64;
  double seconds = 4.0;
  double warmup = 0.3;  // seconds of load before the window
  size_t body_bytes = 1024;
  double rate = 0.0;  // requests a second; 0: closed loop
  std::string path = "/step";
  bool sessions = false;
  std::string body_file;  // one or more bodies of body_bytes each, sent in turn
  bool expect_echo = false;
  long expect_bytes = -1;  // of each answer; -1: any number
};

[[noreturn]] inline void usage(const std::string& why) {
  fprintf(stderr,
          "loadgen: %s\n"
          "usage: loadgen HOST PORT [--connections N] [--seconds S] [--warmup S] [--body-bytes N] [--body-file F]\n"
          "               [--rate R] [--path /step] [--sessions] [--expect-echo] [--expect-bytes N]\n",
          why.c_str());
  exit(2);
}

inline double number(const char* text, const std::string& name) {
  char* end = nullptr;
  double value = strtod(text, &end);
  if (end == text || *end || !(value >= 0)) usage(name + " takes a number, not '" + text + "'");
  return value;
}

inline Options parse(int argc, char** argv) {
  Options o;
  std::vector<std::string> places;
  bool has_body_bytes = false;
  for (int i = 1; i < argc; i++) {
    std::string name = argv[i];
    if (name.rfind("--", 0) != 0) {
      places.push_back(name);
      continue;
    }
    if (name == "--sessions") {
      o.sessions = true;
      continue;
    }
    if (name == "--expect-echo") {
      o.expect_echo = true;
      continue;
    }
    if (i + 1 >= argc) usage(name + " is not known, or lacks its value");
    const char* value = argv[++i];
    if (name == "--connections") o.connections = int(number(value, name));
    else if (name == "--seconds") o.seconds = number(value, name);
    else if (name == "--warmup") o.warmup = number(value, name);
    else if (name == "--body-bytes") o.body_bytes = size_t(number(value, name)), has_body_bytes = true;
    else if (name == "--rate") o.rate = number(value, name);
    else if (name == "--path") o.path = value;
    else if (name == "--body-file") o.body_file = value;
    else if (name == "--expect-bytes") o.expect_bytes = long(number(value, name));
    else usage(name + " is not known");
  }
  if (places.size() != 2) usage("HOST and PORT are needed");
  if (o.connections < 1 || o.seconds <= 0) usage("--connections and --seconds must be more than 0");
  o.host = places[0];
  o.port = places[1];
  if (!o.body_file.empty() && !has_body_bytes) o.body_bytes = 0;  // the whole file
  return o;
}

inline std::vector<std::string> read_bodies(const Options& o) {
  if (o.body_file.empty()) {
    std::string body(o.body_bytes, 'x');
    for (size_t i = 0; i < body.size(); i++) body[i] = char('a' + i % 26);
    return {body};
  }
  std::ifstream file(o.body_file, std::ios::binary);
  if (!file) fail("cannot read " + o.body_file);
  std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  size_t each = o.body_bytes ? o.body_bytes : all.size();
  if (each == 0 || all.empty() || all.size() % each) fail(o.body_file + " is not a number of bodies of --body-bytes");
  std::vector<std::string> bodies;
  for (size_t at = 0; at < all.size(); at += each) bodies.push_back(all.substr(at, each));
  return bodies;
}
