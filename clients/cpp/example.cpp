// A game that plays one session: g++ -std=c++17 -O2 example.cpp -o example && ./example 127.0.0.1 8000 session-1 100
//
// It sends four numbers with each tick, the observation of CartPole, so that it can be tried against
// `ludus serve` of a trial of CartPole-v1, which answers {"action": 0} or {"action": 1}. Your game sends its own.
#include <cstdlib>
#include <iostream>

#include "ludus.hpp"

int main(int argc, char** argv) {
    if (argc < 5) {
        std::cerr << "usage: example HOST PORT SESSION TICKS [TOKEN [SECRET]]\n";
        return 2;
    }
    ludus::Options options;
    if (argc > 5) options.token = argv[5];
    if (argc > 6) options.secret = argv[6];
    try {
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
    }
}
