//! `/stats/summary`.

use super::*;

#[test]
fn the_summary_has_everything() {
    expect![[r#"
        {
          "node": {
            "cpu": {
              "psi": {
                "full": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 11
                },
                "some": {
                  "avg10": 87.62,
                  "avg300": 14.82,
                  "avg60": 39.61,
                  "total": 73505000
                }
              },
              "time": "2023-11-14T22:16:40Z",
              "usageCoreNanoSeconds": 1500000000,
              "usageNanoCores": 1000
            },
            "fs": {
              "availableBytes": 400,
              "capacityBytes": 1000,
              "inodes": 100,
              "inodesFree": 60,
              "inodesUsed": 40,
              "time": "2023-11-14T22:16:40Z",
              "usedBytes": 500
            },
            "memory": {
              "availableBytes": 1073722824,
              "majorPageFaults": 3,
              "pageFaults": 30,
              "psi": {
                "some": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                }
              },
              "rssBytes": 8192,
              "time": "2023-11-14T22:16:40Z",
              "usageBytes": 20000,
              "workingSetBytes": 19000
            },
            "network": {
              "interfaces": [
                {
                  "name": "eth0",
                  "rxBytes": 10,
                  "rxErrors": 0,
                  "txBytes": 20,
                  "txErrors": 0
                }
              ],
              "name": "eth0",
              "rxBytes": 10,
              "rxErrors": 0,
              "time": "2023-11-14T22:16:40Z",
              "txBytes": 20,
              "txErrors": 0
            },
            "nodeName": "node",
            "rlimit": {
              "curproc": 310,
              "maxpid": 32768,
              "time": "2023-11-14T22:16:40Z"
            },
            "runtime": {
              "containerFs": {
                "availableBytes": 400,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 60,
                "inodesUsed": 2,
                "time": "2023-11-14T22:16:40Z",
                "usedBytes": 50
              },
              "imageFs": {
                "availableBytes": 400,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 60,
                "inodesUsed": 2,
                "time": "2023-11-14T22:16:40Z",
                "usedBytes": 300
              }
            },
            "startTime": "2023-11-14T22:13:20Z",
            "swap": {
              "swapAvailableBytes": 960,
              "swapUsageBytes": 64,
              "time": "2023-11-14T22:16:40Z"
            },
            "systemContainers": [
              {
                "cpu": {
                  "time": "2023-11-14T22:16:40Z",
                  "usageCoreNanoSeconds": 1500000001
                },
                "memory": {
                  "availableBytes": 67089864,
                  "majorPageFaults": 3,
                  "pageFaults": 30,
                  "rssBytes": 8192,
                  "time": "2023-11-14T22:16:40Z",
                  "usageBytes": 20000,
                  "workingSetBytes": 19000
                },
                "name": "kubelet",
                "startTime": "2023-11-14T22:13:20Z",
                "swap": {
                  "swapAvailableBytes": 36,
                  "swapUsageBytes": 64,
                  "time": "2023-11-14T22:16:40Z"
                }
              }
            ]
          },
          "pods": [
            {
              "containers": [
                {
                  "cpu": {
                    "time": "2023-11-14T22:16:40Z",
                    "usageCoreNanoSeconds": 1500000001,
                    "usageNanoCores": 250
                  },
                  "logs": {
                    "availableBytes": 400,
                    "capacityBytes": 1000,
                    "inodes": 100,
                    "inodesFree": 60,
                    "inodesUsed": 2,
                    "time": "2023-11-14T22:16:40Z",
                    "usedBytes": 100
                  },
                  "memory": {
                    "availableBytes": 67089864,
                    "majorPageFaults": 3,
                    "pageFaults": 30,
                    "rssBytes": 8192,
                    "time": "2023-11-14T22:16:40Z",
                    "usageBytes": 20000,
                    "workingSetBytes": 19000
                  },
                  "name": "main",
                  "rootfs": {
                    "availableBytes": 400,
                    "capacityBytes": 1000,
                    "inodes": 100,
                    "inodesFree": 60,
                    "inodesUsed": 3,
                    "time": "2023-11-14T22:16:40Z",
                    "usedBytes": 7
                  },
                  "startTime": "2023-11-14T22:15:00Z",
                  "swap": {
                    "swapAvailableBytes": 36,
                    "swapUsageBytes": 64,
                    "time": "2023-11-14T22:16:40Z"
                  }
                }
              ],
              "cpu": {
                "time": "2023-11-14T22:16:40Z",
                "usageCoreNanoSeconds": 3000000002,
                "usageNanoCores": 251
              },
              "ephemeral-storage": {
                "availableBytes": 400,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 60,
                "inodesUsed": 7,
                "time": "2023-11-14T22:16:40Z",
                "usedBytes": 117
              },
              "memory": {
                "majorPageFaults": 6,
                "pageFaults": 60,
                "rssBytes": 16384,
                "time": "2023-11-14T22:16:40Z",
                "usageBytes": 40000,
                "workingSetBytes": 38000
              },
              "network": {
                "interfaces": [
                  {
                    "name": "eth0",
                    "rxBytes": 10,
                    "rxErrors": 0,
                    "txBytes": 20,
                    "txErrors": 0
                  }
                ],
                "name": "eth0",
                "rxBytes": 10,
                "rxErrors": 0,
                "time": "2023-11-14T22:16:40Z",
                "txBytes": 20,
                "txErrors": 0
              },
              "podRef": {
                "name": "web",
                "namespace": "default",
                "uid": "uid-1"
              },
              "process_stats": {
                "process_count": 4
              },
              "startTime": "2023-11-14T22:14:50Z",
              "swap": {
                "swapUsageBytes": 128,
                "time": "2023-11-14T22:16:40Z"
              },
              "volume": [
                {
                  "availableBytes": 400,
                  "capacityBytes": 1000,
                  "inodes": 100,
                  "inodesFree": 60,
                  "inodesUsed": 2,
                  "name": "data",
                  "time": "2023-11-14T22:16:40Z",
                  "usedBytes": 10
                },
                {
                  "availableBytes": 400,
                  "capacityBytes": 1000,
                  "inodes": 100,
                  "inodesFree": 60,
                  "inodesUsed": 2,
                  "name": "fast",
                  "time": "2023-11-14T22:16:40Z",
                  "usedBytes": 10
                },
                {
                  "availableBytes": 400,
                  "capacityBytes": 1000,
                  "inodes": 100,
                  "inodesFree": 60,
                  "inodesUsed": 2,
                  "name": "kept",
                  "pvcRef": {
                    "name": "claim",
                    "namespace": "default"
                  },
                  "time": "2023-11-14T22:16:40Z",
                  "usedBytes": 10
                }
              ]
            }
          ]
        }"#]]
    .assert_eq(&summary_of(&node(), Some(&disks())));
}

#[test]
fn the_summary_of_cpu_and_memory_has_nothing_else() {
    expect![[r#"
        {
          "node": {
            "cpu": {
              "psi": {
                "full": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 11
                },
                "some": {
                  "avg10": 87.62,
                  "avg300": 14.82,
                  "avg60": 39.61,
                  "total": 73505000
                }
              },
              "time": "2023-11-14T22:16:40Z",
              "usageCoreNanoSeconds": 1500000000,
              "usageNanoCores": 1000
            },
            "memory": {
              "availableBytes": 1073722824,
              "majorPageFaults": 3,
              "pageFaults": 30,
              "psi": {
                "some": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                }
              },
              "rssBytes": 8192,
              "time": "2023-11-14T22:16:40Z",
              "usageBytes": 20000,
              "workingSetBytes": 19000
            },
            "nodeName": "node",
            "startTime": "2023-11-14T22:13:20Z",
            "swap": {
              "swapAvailableBytes": 960,
              "swapUsageBytes": 64,
              "time": "2023-11-14T22:16:40Z"
            },
            "systemContainers": [
              {
                "cpu": {
                  "time": "2023-11-14T22:16:40Z",
                  "usageCoreNanoSeconds": 1500000001
                },
                "memory": {
                  "availableBytes": 67089864,
                  "majorPageFaults": 3,
                  "pageFaults": 30,
                  "rssBytes": 8192,
                  "time": "2023-11-14T22:16:40Z",
                  "usageBytes": 20000,
                  "workingSetBytes": 19000
                },
                "name": "kubelet",
                "startTime": "2023-11-14T22:13:20Z",
                "swap": {
                  "swapAvailableBytes": 36,
                  "swapUsageBytes": 64,
                  "time": "2023-11-14T22:16:40Z"
                }
              }
            ]
          },
          "pods": [
            {
              "containers": [
                {
                  "cpu": {
                    "time": "2023-11-14T22:16:40Z",
                    "usageCoreNanoSeconds": 1500000001,
                    "usageNanoCores": 250
                  },
                  "memory": {
                    "availableBytes": 67089864,
                    "majorPageFaults": 3,
                    "pageFaults": 30,
                    "rssBytes": 8192,
                    "time": "2023-11-14T22:16:40Z",
                    "usageBytes": 20000,
                    "workingSetBytes": 19000
                  },
                  "name": "main",
                  "startTime": "2023-11-14T22:15:00Z",
                  "swap": {
                    "swapAvailableBytes": 36,
                    "swapUsageBytes": 64,
                    "time": "2023-11-14T22:16:40Z"
                  }
                }
              ],
              "cpu": {
                "time": "2023-11-14T22:16:40Z",
                "usageCoreNanoSeconds": 3000000002,
                "usageNanoCores": 251
              },
              "memory": {
                "majorPageFaults": 6,
                "pageFaults": 60,
                "rssBytes": 16384,
                "time": "2023-11-14T22:16:40Z",
                "usageBytes": 40000,
                "workingSetBytes": 38000
              },
              "podRef": {
                "name": "web",
                "namespace": "default",
                "uid": "uid-1"
              },
              "startTime": "2023-11-14T22:14:50Z",
              "swap": {
                "swapUsageBytes": 128,
                "time": "2023-11-14T22:16:40Z"
              }
            }
          ]
        }"#]]
    .assert_eq(&summary_of(&node(), None));
}

#[test]
fn the_summary_of_a_node_without_pods_is_json() {
    let mut node = node();
    node.pods.clear();
    assert!(summary_of(&node, None).contains("\"pods\": []"));
}
