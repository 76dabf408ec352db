# MSK with three brokers, over TLS, and one user by SCRAM, whose password is not in Terraform's state.

resource "aws_security_group" "kafka" {
  name        = "${var.name}-kafka"
  description = "Brokers: SCRAM over TLS, from nodes and pods of the cluster."
  vpc_id      = aws_vpc.main.id
}

resource "aws_vpc_security_group_ingress_rule" "kafka" {
  security_group_id            = aws_security_group.kafka.id
  referenced_security_group_id = aws_eks_cluster.main.vpc_config[0].cluster_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = 9096
  to_port                      = 9096
}

resource "aws_msk_cluster" "main" {
  cluster_name           = var.name
  kafka_version          = "4.1.x.kraft"
  number_of_broker_nodes = length(local.zones)

  broker_node_group_info {
    instance_type   = "kafka.m7g.large"
    client_subnets  = aws_subnet.private[*].id
    security_groups = [aws_security_group.kafka.id]
    storage_info {
      ebs_storage_info {
        volume_size = 100
      }
    }
  }
  client_authentication {
    sasl {
      scram = true
    }
  }
}

# MSK takes no secret under Secrets Manager's own key, and none whose name begins otherwise.
resource "aws_kms_key" "kafka" {
  description         = "${var.name}: Kafka's password"
  enable_key_rotation = true
}

resource "aws_secretsmanager_secret" "kafka" {
  name                    = "AmazonMSK_${var.name}"
  kms_key_id              = aws_kms_key.kafka.arn
  recovery_window_in_days = 0
}

ephemeral "aws_secretsmanager_random_password" "kafka" {
  password_length     = 32
  exclude_punctuation = true
}

resource "aws_secretsmanager_secret_version" "kafka" {
  secret_id = aws_secretsmanager_secret.kafka.id
  secret_string_wo = jsonencode({
    username = "headrace"
    password = ephemeral.aws_secretsmanager_random_password.kafka.random_password
  })
  secret_string_wo_version = 1 # another number makes a new password
}

resource "aws_secretsmanager_secret_policy" "kafka" {
  secret_arn = aws_secretsmanager_secret.kafka.arn
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "AWSKafkaResourcePolicy"
      Effect    = "Allow"
      Action    = "secretsmanager:getSecretValue"
      Principal = { Service = "kafka.amazonaws.com" }
      Resource  = aws_secretsmanager_secret.kafka.arn
    }]
  })
}

resource "aws_msk_scram_secret_association" "kafka" {
  cluster_arn     = aws_msk_cluster.main.arn
  secret_arn_list = [aws_secretsmanager_secret.kafka.arn]
  depends_on      = [aws_secretsmanager_secret_version.kafka, aws_secretsmanager_secret_policy.kafka]
}
