// A game that plays one session: g++ -std=c++17 -O2 example.cpp -o example && ./example 127.0.0.1 8000 session-1 100
//
// It sends four numbers with each tick, the observation of CartPole, so that it can be tried against
// `ludus serve` of a trial of CartPole-v1, which answers {"action": 0} or {"action": 1}. Your game sends its own.
//
// All users of a machine can read the arguments of a process. So token and secret may also come from the environment,
// as for the server: LUDUS_TOKEN and LUDUS_SECRET, or LUDUS_TOKEN_FILE and LUDUS_SECRET_FILE, which name files.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>

#include "ludus.hpp"

// What a variable, or else the file that variable_FILE names, holds; empty if neither is set.
std::string from_environment(const std::string& variable) {
    const char* value = std::getenv(variable.c_str());
    const char* path = std::getenv((variable + "_FILE").c_str());
    const bool has_value = value != nullptr && *value, has_path = path != nullptr && *path;
    if (has_value && has_path) throw std::runtime_error("both " + variable + " and " + variable + "_FILE are set");
    if (!has_path) return has_value ? value : "";
    std::ifstream file(path);
    std::string line, more;
    std::getline(file, line);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || std::getline(file, more))
        throw std::runtime_error(std::string(path) + " must have one line, the value of " + variable);
    return line;
}

int main(int argc, char** argv) {
    if (argc < 5) {
        std::cerr << "usage: example HOST PORT SESSION TICKS [TOKEN [SECRET]]\n";
        return 2;
    }
    try {
        ludus::Options options;
        options.token = argc > 5 ? argv[5] : from_environment("LUDUS_TOKEN");
        options.secret = argc > 6 ? argv[6] : from_environment("LUDUS_SECRET");
        ludus::Game game(argv[1], std::atoi(argv[2]), argv[3], options);
        std::string answer = game.start();
        std::cout << "start " << answer << "\n";
        for (int i = 0; i < std::atoi(argv[4]); ++i) {
            answer = game.tick("[0.01, -0.02, 0.03, " + std::to_string(i) + "]");
            std::cout << "tick " << answer << "\n";
        }
        answer = game.end("{\"reward\": 1.0, \"terminated\": true}");
        std::cout << "end " << answer << "\n";
    } catch (const ludus::Error& error) {
        std::cout << "error " << error.code << " " << error.status << "\n";
        std::cerr << error.what() << "\n";
        return 1;
    } catch (const std::runtime_error& error) {
        std::cerr << error.what() << "\n";
        return 2;
    }
}
