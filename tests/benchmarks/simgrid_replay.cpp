// Plays the schedules of one fabric in SimGrid. Prints the processor seconds it took to build the platform,
// once, and for each schedule "seconds makespan": processor seconds of playing it, and the simulated time.
// Reads the text that simgrid_race.py writes.
//
// An actor for every lane, a semaphore to wait for other lanes; a transfer sleeps its latency and then sends.
// Engines are exclusive here, so a gemm sleeps too.
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

namespace sg = simgrid::s4u;

struct Action {
  int lane; // -1 for a barrier
  int src;  // -1 if it only takes seconds
  int dst;
  double amount; // bytes, or seconds
  double latency;
  std::vector<int> after;
};

struct Route {
  int src;
  int dst;
  double latency;
  std::vector<int> links;
};

struct Lane {
  std::vector<int> actions;
  sg::SemaphorePtr wake;
  int asleep_for = -1; // the action whose dependencies it sleeps for
};

static std::vector<sg::Host*> hosts;

class Replay {
  const std::vector<Action>& actions;
  std::vector<int> waits_for;
  std::vector<std::vector<int>> successors;
  std::vector<Lane> lanes;

  void finish(int number)
  {
    for (int successor : successors[number]) {
      if (--waits_for[successor] > 0)
        continue;
      if (actions[successor].lane < 0)
        finish(successor);
      else if (lanes[actions[successor].lane].asleep_for == successor)
        lanes[actions[successor].lane].wake->release();
    }
  }

  void play(Lane& lane)
  {
    for (int number : lane.actions) {
      if (waits_for[number] > 0) {
        lane.asleep_for = number;
        lane.wake->acquire();
      }
      const Action& action = actions[number];
      if (action.src < 0) {
        sg::this_actor::sleep_for(action.amount);
      } else {
        sg::this_actor::sleep_for(action.latency);
        sg::Comm::sendto(hosts[action.src], hosts[action.dst], static_cast<uint64_t>(action.amount));
      }
      finish(number);
    }
  }

public:
  Replay(const std::vector<Action>& actions_, int lane_count)
      : actions(actions_), waits_for(actions_.size()), successors(actions_.size()), lanes(lane_count)
  {
    for (size_t i = 0; i < actions.size(); i++) {
      if (actions[i].lane >= 0)
        lanes[actions[i].lane].actions.push_back(i);
      for (int before : actions[i].after)
        if (actions[before].lane < 0 || actions[before].lane != actions[i].lane) {
          successors[before].push_back(i);
          waits_for[i]++;
        }
    }
  }

  void run(sg::Engine& engine)
  {
    for (Lane& lane : lanes)
      if (not lane.actions.empty()) {
        lane.wake = sg::Semaphore::create(0);
        sg::Actor::create("lane", hosts[0], [this, &lane] { play(lane); });
      }
    engine.run();
  }
};

static double processor_seconds()
{
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void read_fabric(std::istream& text, int& ranks, int& lane_count, std::vector<double>& bandwidths,
                        std::vector<Route>& routes)
{
  size_t link_count;
  size_t route_count;
  text >> ranks >> lane_count >> link_count >> route_count;
  bandwidths.resize(link_count);
  for (double& bandwidth : bandwidths)
    text >> bandwidth;
  routes.resize(route_count);
  for (Route& route : routes) {
    size_t length;
    text >> route.src >> route.dst >> route.latency >> length;
    route.links.resize(length);
    for (int& link : route.links)
      text >> link;
  }
}

static void build_platform(int ranks, const std::vector<double>& bandwidths, const std::vector<Route>& routes)
{
  auto* zone = sg::create_full_zone("fabric");
  std::vector<sg::Link*> links;
  for (double bandwidth : bandwidths)
    links.push_back(
        zone->create_link("link " + std::to_string(links.size()), bandwidth)->set_latency(0.0)->seal());
  for (int i = 0; i < ranks; i++)
    hosts.push_back(zone->create_host("rank " + std::to_string(i), 1.0));
  for (const Route& route : routes) {
    std::vector<sg::LinkInRoute> through;
    for (int link : route.links)
      through.emplace_back(links[link]);
    zone->add_route(hosts[route.src]->get_netpoint(), hosts[route.dst]->get_netpoint(), nullptr, nullptr, through,
                    false);
  }
  zone->seal();
}

int main(int argc, char* argv[])
{
  sg::Engine engine(&argc, argv);
  for (const char* setting :
       {"network/model:CM02", "network/bandwidth-factor:1", "network/latency-factor:1", "network/weight-S:0",
        "network/TCP-gamma:0", "network/crosstraffic:0", "surf/precision:1e-12", "maxmin/precision:1e-12",
        "contexts/stack-size:64"})
    sg::Engine::set_config(setting);
  std::ifstream text(argv[1]);
  int ranks;
  int lane_count;
  std::vector<double> bandwidths;
  std::vector<Route> routes;
  read_fabric(text, ranks, lane_count, bandwidths, routes);

  const double start = processor_seconds();
  build_platform(ranks, bandwidths, routes);
  std::printf("%.9g\n", processor_seconds() - start);

  std::map<std::pair<int, int>, double> latencies;
  for (const Route& route : routes)
    latencies[{route.src, route.dst}] = route.latency;
  int action_count;
  while (text >> action_count) {
    std::vector<Action> actions(action_count);
    for (Action& action : actions) {
      int waits;
      text >> action.lane >> action.src >> action.dst >> action.amount >> waits;
      action.after.resize(waits);
      for (int& before : action.after)
        text >> before;
      if (action.src >= 0)
        action.latency = latencies[{action.src, action.dst}];
    }
    const double simulated = sg::Engine::get_clock();
    const double start = processor_seconds();
    Replay replay(actions, lane_count);
    replay.run(engine);
    const double took = processor_seconds() - start;
    std::printf("%.9g %.17g\n", took, sg::Engine::get_clock() - simulated);
  }
  return 0;
}
