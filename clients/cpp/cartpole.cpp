// CartPole as a game that is learnt from while it is played, some poles at once, until it is asked to stop:
//
//     ludus train appo game://127.0.0.1:8000 --spec examples/cartpole_game.json --steps 200000 --trial poles
//     g++ -std=c++17 -O2 -pthread clients/cpp/cartpole.cpp -o cartpole && ./cartpole 127.0.0.1 8000 16
//
// While nobody answers it tries again. `ludus serve poles` plays what was learnt with the same game.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ludus.hpp"

// A pole on a cart that is pushed left or right (Barto, Sutton and Anderson, 1983), as in Gymnasium's CartPole-v1.
struct Pole {
    double x = 0, v = 0, angle = 0, turn = 0;
    int steps = 0;

    explicit Pole(std::mt19937& random) {
        std::uniform_real_distribution<double> small(-0.05, 0.05);
        for (double* each : {&x, &v, &angle, &turn}) *each = small(random);
    }

    void push(bool right) {
        const double mass = 1.1, pole = 0.1, half_length = 0.5, seconds = 0.02;
        const double pull = ((right ? 10.0 : -10.0) + pole * half_length * turn * turn * std::sin(angle)) / mass;
        const double turning = (9.8 * std::sin(angle) - std::cos(angle) * pull) /
                               (half_length * (4.0 / 3.0 - pole * std::cos(angle) * std::cos(angle) / mass));
        const double moving = pull - pole * half_length * turning * std::cos(angle) / mass;
        x += seconds * v;
        v += seconds * moving;
        angle += seconds * turn;
        turn += seconds * turning;
        ++steps;
    }

    bool has_fallen() const { return std::abs(x) > 2.4 || std::abs(angle) > 12 * 3.14159265358979 / 180; }
    bool is_over() const { return has_fallen() || steps >= 500; }

    // The body of a step: what is seen now, and what the last push earned.
    std::string body() const {
        return "{\"obs\": [" + std::to_string(x) + ", " + std::to_string(v) + ", " + std::to_string(angle) + ", " +
               std::to_string(turn) + "], \"reward\": " + (steps ? "1.0" : "0.0") +
               ", \"terminated\": " + (has_fallen() ? "true" : "false") + "}";
    }
};

[[noreturn]] void play(const std::string& host, int port, int number) {
    std::mt19937 random(number);
    std::random_device unique;
    for (;;) {
        const std::string session = "cpp-" + std::to_string(number) + "-" + std::to_string(unique());
        try {
            ludus::Options options;
            options.timeout_ms = 60000;
            ludus::Game game(host, port, session, options);
            for (;;) {
                Pole pole(random);
                std::string answer = game.start(pole.body());
                for (;;) {
                    pole.push(answer.find('1') != std::string::npos);  // {"action":1}
                    if (pole.is_over()) break;
                    answer = game.tick(pole.body());
                }
                game.end(pole.body());
            }
        } catch (const ludus::Error&) {  // nobody answers, or the session is lost: begin another one
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
        }
    }
}

int main(int argc, char** argv) {
    if (argc < 4) {
        std::cerr << "usage: cartpole HOST PORT POLES\n";
        return 2;
    }
    std::vector<std::thread> poles;
    for (int number = 0; number < std::atoi(argv[3]); ++number) poles.emplace_back(play, argv[1], std::atoi(argv[2]), number);
    for (auto& each : poles) each.join();
}
